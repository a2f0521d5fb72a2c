"""Values derived from the settings: heartbeat, deadline, names, targets, and the console's own check."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outbox.config import Settings, load_settings
from outbox.config.service import default_log_format
from outbox.errors import ConfigurationError

DSN = "postgresql://app:pw@db:5432/shop"


def load(**environ: str) -> Settings:
    return load_settings({"DATABASE_URL": DSN} | environ)


@pytest.mark.parametrize(
    ("timeout", "lease", "grace", "deadline", "remark"),
    [
        ("30", "60", "25", 20.0, "grace - 5 s at the defaults"),
        ("4", "60", "25", 4.0, "the timeout"),
        ("30", "10", "25", 7.0, "0.7 x lease"),
        ("30", "60", "8", 3.0, "the shortest grace"),
    ],
)
def test_a_request_ends_before_its_lease_and_before_the_grace(
    timeout: str, lease: str, grace: str, deadline: float, remark: str
) -> None:
    settings = load(ELASTIC_TIMEOUT_SECONDS=timeout, OUTBOX_LEASE_SECONDS=lease, OUTBOX_SHUTDOWN_GRACE_SECONDS=grace)
    assert settings.request_deadline_seconds == pytest.approx(deadline), remark


@pytest.mark.parametrize(
    ("variable", "value", "by_type"),
    [
        ("OUTBOX_ENTITY_TYPES", "a", True),
        ("OUTBOX_KIND_RATE", '{"a": 1}', True),
        ("OUTBOX_KIND_RATE_DEFAULT", "1", True),
        ("ELASTIC_INDEX_MAP", '{"a": "other"}', True),
        ("ELASTIC_INDEX_MAP", '{"a": "search-index"}', False),
        ("OUTBOX_LISTEN", "true", False),
    ],
)
def test_settings_by_type_ask_for_claims_by_type(variable: str, value: str, by_type: bool) -> None:
    assert load(**{variable: value}).claims_by_type is by_type


@pytest.mark.parametrize(
    ("host", "tokens", "accepted", "remark"),
    [
        ("127.0.0.1", False, True, "loopback"),
        ("::1", False, True, "loopback"),
        ("localhost", False, True, "loopback by name"),
        ("0.0.0.0", False, False, "everyone"),
        ("ops.example", False, False, "a name that may be anything"),
        ("0.0.0.0", True, True, "everyone with a token"),
    ],
)
def test_the_console_needs_tokens_where_others_can_reach_it(
    host: str, tokens: bool, accepted: bool, remark: str, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text("")
    settings = load(OUTBOX_CONSOLE_HOST=host, **({"OUTBOX_CONSOLE_TOKENS_FILE": str(file)} if tokens else {}))
    if accepted:
        settings.check_console()
    else:
        with pytest.raises(ConfigurationError, match="OUTBOX_CONSOLE_TOKENS_FILE"):
            settings.check_console()


def test_behind_a_proxy_the_console_needs_tokens_on_loopback_too() -> None:
    with pytest.raises(ConfigurationError, match="OUTBOX_CONSOLE_TRUSTED_PROXIES"):
        load(OUTBOX_CONSOLE_TRUSTED_PROXIES="127.0.0.1").check_console()


@pytest.mark.parametrize(
    ("lease", "heartbeat", "remark"),
    [
        ("60", 20.0, "a third"),
        ("3", 1.0, "the shortest lease"),
        ("3600", 1200.0, "a long one"),
    ],
)
def test_the_heartbeat_is_a_third_of_the_lease(lease: str, heartbeat: float, remark: str) -> None:
    assert load(OUTBOX_LEASE_SECONDS=lease).lease.heartbeat_seconds == pytest.approx(heartbeat), remark


@pytest.mark.parametrize(("terminal", "expected"), [(True, "console"), (False, "json")])
def test_logs_are_json_but_readable_on_a_terminal(
    terminal: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert default_log_format() == expected
    assert load().log.format == expected
    assert load(OUTBOX_LOG_FORMAT="json").log.format == "json"


def test_an_entity_type_goes_to_its_index_and_all_others_to_the_default() -> None:
    elastic = load(ELASTIC_INDEX="rest", ELASTIC_INDEX_MAP='{"a": "first", "b": "rest"}').elastic
    assert [elastic.index_for(kind) for kind in ("a", "b", "c")] == ["first", "rest", "rest"]
    assert elastic.targets == ("rest", "first")
