"""What people and producers write, fuzzed: filters, cursors, places, times, trace contexts, webhooks, settings."""

import json
import string
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from typing import Any, TypeVar
from urllib.parse import urlsplit

from hypothesis import example, given
from hypothesis import strategies as st

from outbox.config import load_settings
from outbox.config.settings import VARIABLES
from outbox.errors import ConfigurationError, UsageError
from outbox.ops.events import _SHELVES, Shelf, begin
from outbox.policy import inputs
from outbox.policy.inputs import BadRequest, read_event_filter
from outbox.policy.inputs import given as told
from outbox.policy.webhook import bad_url, is_public, verify
from outbox.telemetry import log_lines
from tests.fixtures.events import an_event
from tests.unit.fuzz.texts import JSON, TEXT

NOW = datetime(2026, 2, 3, 10, tzinfo=UTC)
NAMES = st.sampled_from(
    ["entity_type", "entity_id", "error_reason", "error_code", "dead_reason", "failure_type", "fingerprint", "trace_id",
     "ids", "since", "until", "action", "actor", "batch_id", "nonsense"]
)  # fmt: skip
LIKELY = st.sampled_from(
    ["none", "2h", "7d", "2026-02-03T10:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "network",
     "OUTBOX_PAYLOAD_INVALID", "0" * 16, "f" * 32, "00000000-0000-4000-8000-000000000000", "REPLAY_BATCH_ITEM",
     "99999w"]
)  # fmt: skip
RAW = st.dictionaries(NAMES, LIKELY | JSON | TEXT, max_size=5)


T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def attempt(work: Callable[[], T], refusal: type[E]) -> T | E:
    """What it gives, or how it refuses; every other exception is a finding."""
    try:
        return work()
    except refusal as refused:
        return refused


@given(RAW)
def test_an_event_filter_is_read_or_refused_and_reads_back_the_same(raw: dict[str, Any]) -> None:
    asked = attempt(lambda: read_event_filter(raw, NOW), BadRequest)
    if isinstance(asked, BadRequest):
        assert asked.problems
        assert len(str(asked)) < 5000, "a refusal does not repeat what it was given"
        return
    assert read_event_filter(told(asked), NOW) == asked
    json.dumps(told(asked))


@given(TEXT | st.text(string.ascii_letters + string.digits + "-_=", max_size=120))
def test_a_cursor_is_ours_or_refused(text: str) -> None:
    try:
        at, id = inputs.read_cursor(text)
    except BadRequest:
        return
    assert inputs.read_cursor(inputs.cursor(at, id)) == (at, id)


@given(TEXT | st.from_regex(r"[0-9]{1,30}", fullmatch=True), st.sampled_from(_SHELVES))
def test_a_place_is_ours_or_refused(text: str, shelf: Shelf) -> None:
    try:
        named = begin(shelf, text)
    except UsageError:
        return
    if shelf.ended:
        assert named["before_at"].tzinfo is not None
    else:
        assert 0 <= named["before_seq"] < 2**63


HEX = st.text("0123456789abcdefABCDEF-xyz\n", max_size=70)


@given(TEXT | HEX | st.from_regex(r"00-.{32}-.{16}-01", fullmatch=True))
@example(f"00-{'x' * 32}-{'0' * 16}-01")  # was shown in the log as a trace id
def test_a_trace_id_is_32_hex_digits_or_none(text: str) -> None:
    found = log_lines._trace_id(an_event(traceparent=text))
    assert found is None or (len(found) == 32 and set(found) <= set("0123456789abcdef"))


@given(
    st.dictionaries(st.sampled_from(["webhook-id", "Webhook-Timestamp", "webhook-signature"]) | TEXT, TEXT), st.binary()
)
def test_no_message_is_ours_without_our_secret(headers: dict[str, str], body: bytes) -> None:
    assert verify("whsec_c2VjcmV0", headers, body, 1_700_000_000.0) is not None


HOSTS = st.sampled_from(
    ["allowed.example", "ALLOWED.example.", "other.example", "allowed.example@other.example", "[::1]"]
)
SCHEMES = st.sampled_from(["http", "https", "HTTP", "hTTpS", "ftp", "file", "javascript", " https", "ht\ntp", ""])


@given(TEXT | st.builds("{}:{}{}{}".format, SCHEMES, st.sampled_from(["//", "", "/", "\\\\"]), TEXT | HOSTS, TEXT))
def test_an_address_of_a_webhook_is_judged(url: str) -> None:
    if bad_url(url, ["allowed.example"]) is None:
        parts = urlsplit(url)
        assert parts.scheme == "https" or (
            parts.scheme == "http" and parts.hostname in ("allowed.example", "allowed.example.")
        )
        assert parts.hostname
        assert "@" not in parts.netloc
        assert url.isascii()
        assert url.isprintable()
        assert " " not in url


# Where IPv4 hides in IPv6, and the ranges that are not for everyone.
RANGES = (
    "::/96", "::ffff:0:0/96", "64:ff9b::/96", "2001::/32", "2002::/16", "fc00::/7", "fe80::/10", "fec0::/10",
    "ff00::/8",
)  # fmt: skip


@given(st.ip_addresses() | st.sampled_from(RANGES).flatmap(lambda network: st.ip_addresses(network=network)))
def test_no_private_address_is_public_however_it_is_wrapped(address: Any) -> None:
    inner = (address.ipv4_mapped or address.sixtofour) if address.version == 6 else None
    if is_public(str(address)):
        # A wrapped one is the IPv4 address itself; of 2002::/16 Python 3.13 calls none global, 3.11 calls all so.
        assert address.is_global or (inner and inner.is_global)
        assert not address.is_multicast
        assert not (address.version == 6 and address.is_site_local)
    if address.version == 4 and not address.is_global:
        for wrapped in (
            f"::ffff:{address}",
            f"64:ff9b::{address}",
            f"2002:{int(address) >> 16:x}:{int(address) & 65535:x}::",
        ):
            assert not is_public(wrapped), wrapped


SETTINGS = st.sampled_from(
    [*VARIABLES, "ELASTIC_API_KEY_FILE", "OUTBOX_NONSENSE", "ELASTIC_PASWORD", "OUTBOX_BULK_SIZE"]
)
VALUES = TEXT.filter(lambda text: "\x00" not in text) | JSON.map(json.dumps) | st.integers().map(str) | st.sampled_from(
    ["true", "0", "-1", "1e309", "nan", "inf", "{}", "[]", '{"a": 1}', '{"a":"B"}', "tcp://10.0.0.1:80", "x" * 4_000]
)  # fmt: skip


@given(st.dictionaries(SETTINGS, VALUES, max_size=6))
def test_any_environment_is_usable_or_refused_with_every_problem_named(environ: dict[str, str]) -> None:
    settings = attempt(lambda: load_settings(environ, require_database=False), ConfigurationError)
    if isinstance(settings, ConfigurationError):
        assert settings.problems
        for problem in settings.problems:
            assert problem.variable
            assert problem.remedy
            assert len(str(problem)) < 3000, "a refusal does not repeat what it was given"
        return
    json.dumps(settings.redacted())


SECRET_NAMES = sorted(name for name, variable in VARIABLES.items() if variable.secret)


@given(st.text("abcdefXYZ0123456789:/@?&=#%' ", min_size=8, max_size=40))
def test_no_secret_of_any_form_is_repeated_when_it_is_refused(secret: str) -> None:
    marked = f"canary{secret}canary"
    for name, value in product(SECRET_NAMES, (marked, f"mysql://u:{marked}@h/x", f"{marked}\n{marked}")):
        try:
            shown = json.dumps(load_settings({name: value}, require_database=False).redacted())
        except ConfigurationError as refused:
            shown = str(refused)
        assert marked not in shown, name
        assert "canary" + secret.strip().split(" ")[0][:8] not in shown or len(secret.strip()) < 8, name
