"""A secret is never shown: not in problems, not in a repr, not by `config print`."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from outbox.config import VARIABLES, load_settings
from outbox.errors import ConfigurationError
from outbox.policy.redact import redact_address, redact_dsn

CANARY = "c4n4ry"
GOOD = {
    "DATABASE_URL": f"postgresql://app:{CANARY}@db/shop?password={CANARY}&sslmode=require",
    "OUTBOX_DIRECT_DATABASE_URL": f"host=db password={CANARY} dbname=shop",
    "OUTBOX_READ_DATABASE_URL": f"postgresql://app:{CANARY}@replica/shop",
    "ELASTIC_USERNAME": "elastic",
    "ELASTIC_PASSWORD": CANARY,
    "KAFKA_CONNECT_USERNAME": "outbox",
    "KAFKA_CONNECT_PASSWORD": CANARY,
    "OUTBOX_WEBHOOK_URL": f"https://hooks.example/services/{CANARY}?token={CANARY}",
    "OUTBOX_WEBHOOK_SECRET": CANARY,
}
BAD = {
    "DATABASE_URL": f"mysql://app:{CANARY}@db/shop",
    "OUTBOX_DIRECT_DATABASE_URL": f"postgresql://app:{CANARY}%zz@db",
    "OUTBOX_READ_DATABASE_URL": f"mysql://app:{CANARY}@replica",
    "ELASTIC_URL": f"http://es:9200,http://elastic:{CANARY},{CANARY}@es",
    "ELASTIC_CLOUD_ID": f"shop:{CANARY}",
    "ELASTIC_API_KEY": f"{CANARY}\n{CANARY}",
    "ELASTIC_PASSWORD": f"{CANARY}\n{CANARY}",
    "KAFKA_CONNECT_URL": f"http://outbox:{CANARY}@connect:8083",
    "KAFKA_CONNECT_PASSWORD": f"{CANARY}\n{CANARY}",
    "OUTBOX_WEBHOOK_URL": f"https://user:{CANARY}@hooks.example/{CANARY}",
    "OUTBOX_WEBHOOK_SECRET": f"{CANARY}\x00",
    "OUTBOX_WEBHOOK_SECRT": CANARY,
}


def test_no_view_of_the_settings_shows_a_secret() -> None:
    settings = load_settings(GOOD)
    views = [repr(settings), str(settings), json.dumps(settings.redacted()), repr(settings.webhook)]
    assert not any(CANARY in view for view in views)


def test_no_problem_shows_a_secret_not_even_in_its_traceback() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(BAD)
    assert {problem.variable for problem in caught.value.problems} == set(BAD)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_config_print_shows_every_variable_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(CANARY)
    environ = {"DATABASE_URL": GOOD["DATABASE_URL"], "ELASTIC_API_KEY_FILE": str(file), "OUTBOX_BATCH_SIZE": "7"}
    shown = load_settings(environ, {"OUTBOX_ENTITY_TYPES": ["a"]}).redacted()
    assert list(shown) == list(VARIABLES)
    assert shown["DATABASE_URL"] == {
        "value": "postgresql://app:***@db/shop?password=***&sslmode=require",
        "source": "environment",
    }
    assert shown["ELASTIC_API_KEY"] == {"value": "***", "source": "file"}
    assert shown["ELASTIC_PASSWORD"] == {"value": None, "source": "default"}
    assert shown["OUTBOX_BATCH_SIZE"] == {"value": 7, "source": "environment"}
    assert shown["OUTBOX_ENTITY_TYPES"] == {"value": ["a"], "source": "flag"}
    json.dumps(shown)


@pytest.mark.parametrize("name", ["ELASTIC_API_KEY", "ELASTIC_PASSWORD", "DATABASE_URL", "OUTBOX_WEBHOOK_SECRET"])
def test_the_content_of_a_wrong_secret_file_is_not_shown(name: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{CANARY}\n{CANARY}")
    with pytest.raises(ConfigurationError) as caught:
        load_settings({f"{name}_FILE": str(file)}, require_database=False)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://db/shop", "postgresql://db/shop"),
        ("postgresql://app:s@db:5432/shop", "postgresql://app:***@db:5432/shop"),
        ("postgresql://app:s@cr:e/t@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app:s@a:1,b:2/shop", "postgresql://app:***@a:1,b:2/shop"),
        ("postgresql://db/shop?password=s&user=app", "postgresql://db/shop?password=***&user=app"),
        ("host=db password='it\\'s' user=app", "host=db password=*** user=app"),
        ("host=db password=a\\ b&c user=app", "host=db password=*** user=app"),
        ("cannot reach postgresql://a:s@db or http://b:s@es", "cannot reach postgresql://a:***@db or http://b:***@es"),
    ],
)
def test_a_connection_string_is_shown_without_its_password(text: str, shown: str) -> None:
    assert redact_dsn(text) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example", "https://hooks.example"),
        ("https://hooks.example:8443/a/b", "https://hooks.example:8443/***"),
        ("https://hooks.example/?token=s", "https://hooks.example/***"),
        ("https://u:p@hooks.example/", "https://hooks.example"),
        ("https://[broken", "***"),
    ],
)
def test_a_webhook_address_is_shown_without_its_path(url: str, shown: str) -> None:
    assert redact_address(url) == shown
