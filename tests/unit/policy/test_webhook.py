"""The content of a webhook, its signature, its retries and its allowed addresses; nothing is sent here."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema_rs
import pytest

from outbox.daemon.webhooks import Notices, WebhookSender
from outbox.facts import AttemptFailed, SinkPaused, SinkResumed
from outbox.policy.event import Event
from outbox.policy.outcome import DeadReason, Failure, Reason
from outbox.policy.replay import ReplayBatch, ReplayStatus
from outbox.policy.webhook import (
    HookType,
    Notice,
    bad_url,
    headers,
    is_public,
    message,
    replay_notices,
    retry_delay_seconds,
    sign,
    verify,
)

SCHEMAS = Path(__file__).parents[3] / "docs" / "webhooks"
NOW = datetime(2026, 2, 3, 12, tzinfo=UTC)
# The test vector that the libraries of Standard Webhooks share.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def batch(**about: Any) -> ReplayBatch:
    names = dict.fromkeys(ReplayBatch.__slots__)
    counts = dict.fromkeys(("total", "replayed", "skipped", "done", "failed_again", "still_open", "poll_count"), 0)
    known = {"id": uuid4(), "status": ReplayStatus.SETTLED, "requested_by": "alice", "requested_reason": "x"}
    times = {"created_at": NOW, "updated_at": NOW, "settled_at": NOW, "source": "cli", "filter": {"ids": []}}
    return ReplayBatch(**{**names, **counts, **known, **times, **about})


def valid(body: Any) -> None:
    schema = json.loads((SCHEMAS / f"{body['type']}.schema.json").read_text())
    jsonschema_rs.validate(schema, json.loads(json.dumps(body, default=str)))


def test_the_signature_is_the_one_that_other_libraries_make() -> None:
    assert sign(SECRET, ID, AT, BODY) == SIGNATURE
    assert headers(SECRET, ID, AT, BODY)["webhook-signature"] == SIGNATURE
    assert "webhook-signature" not in headers(None, ID, AT, BODY)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"Webhook-Signature": "v1,AAAA " + SIGNATURE}, None),
        ({"Webhook-Signature": "v1,AAAA"}, "no signature fits"),
        ({"Webhook-Signature": "v1a," + SIGNATURE[3:]}, "no signature fits"),
        ({"Webhook-Id": "msg_other"}, "no signature fits"),
        ({"Webhook-Timestamp": str(AT + 1)}, "no signature fits"),
        ({"Webhook-Timestamp": str(AT - 301)}, "300 s away"),
        ({"Webhook-Timestamp": "soon"}, "not a number"),
        ({"Webhook-Timestamp": ""}, "header is missing"),
        ({"Webhook-Id": ""}, "header is missing"),
    ],
)
def test_a_verifier_accepts_only_what_was_signed_and_is_fresh(change: dict[str, str], why: str | None) -> None:
    given_headers = {"Webhook-Id": ID, "Webhook-Timestamp": str(AT), "Webhook-Signature": SIGNATURE, **change}
    found = verify(SECRET, given_headers, BODY, now=AT)
    assert (found is None) if why is None else (found is not None and why in found)


def test_tries_come_after_half_a_second_to_twelve_hours_and_then_no_more() -> None:
    delays = [retry_delay_seconds(n, 3) for n in range(1, 10)]
    assert delays == [0.5, 1.5, 3.5, 60, 300, 1800, 7200, 43200, None]
    assert [retry_delay_seconds(n, 0) for n in (1, 5, 6)] == [60, 43200, None]


@pytest.mark.parametrize(
    ("url", "allowed", "why"),
    [
        ("https://example.com/x", (), None),
        ("http://example.com/x", (), "plain http"),
        ("http://hooks.local:8080/x", ("hooks.local",), None),
        ("http://HOOKS.local./x", ("hooks.local",), None),
        ("ftp://example.com", (), "https://host/path"),
        ("https://", (), "https://host/path"),
        ("https://u:p@example.com/", (), "user name"),
        ("https://example.com/a b", (), "printable"),
        ("https://example.com:port/", (), "can be read"),
        ("https://example.com/" + "x" * 2000, (), "at most"),
        ("file:///etc/passwd", (), "https://host/path"),
    ],
)
def test_addresses_are_judged_by_their_text_first(url: str, allowed: tuple[str, ...], why: str | None) -> None:
    found = bad_url(url, allowed)
    assert (found is None) if why is None else (found is not None and why in found)


PRIVATE = (
    "127.0.0.1 127.8.8.8 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255"
    " 192.0.0.9 192.0.0.171 192.0.0.100 192.0.2.1 198.18.0.1 ::1 :: fe80::1%eth0 fc00::1 ff02::1 ::ffff:127.0.0.1"
    " ::ffff:10.0.0.1 64:ff9b::a00:1 2002:7f00:1::"
    " fec0::1 2001:0:808:808:8000:63bf:f7f7:f7f7"  # site-local, and Teredo before 8.8.8.8; found by fuzzing
)
PUBLIC = "8.8.8.8 93.184.215.14 2606:2800:21f:cb07:6820:80da:af6b:8b2c"


@pytest.mark.parametrize("address", [*PRIVATE.split(), *PUBLIC.split()])
def test_private_and_special_addresses_are_not_public(address: str) -> None:
    assert is_public(address) == (address in PUBLIC.split())


def test_a_replays_end_is_reported_to_both_addresses_once_each_and_fits_its_schema() -> None:
    one = batch(webhook_url="https://own.example/x")
    told = replay_notices(one, "https://all.example/x")
    assert [notice.url for notice in told] == ["https://all.example/x", "https://own.example/x"]
    assert len({notice.dedupe_key for notice in told}) == 2
    valid(told[0].body)
    assert len(replay_notices(batch(webhook_url="https://a/x"), "https://a/x")) == 1
    assert replay_notices(batch(), None) == []
    valid(message(HookType.TEST, NOW, {"host": "example.com"}))


class KeptNotices:
    """Accepts notices like the store: a key only once."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def enqueue(self, notices: list[Notice]) -> list[bool]:
        new = [notice.dedupe_key not in {kept.dedupe_key for kept in self.notices} for notice in notices]
        self.notices += [notice for notice, is_new in zip(notices, new, strict=True) if is_new]
        return new

    def types(self) -> list[HookType]:
        return [notice.type for notice in self.notices]


def noticing(kept: KeptNotices, url: str | None = "https://example.com/x") -> Notices:
    return Notices(kept, url, "p")  # type: ignore[arg-type]


@pytest.fixture
def kept() -> KeptNotices:
    return KeptNotices()


PAUSED = SinkPaused("articles", "es_auth", "401")
RESUMED = SinkResumed("articles", "es_auth", 3.5)


def failed(entity_type: str = "block", fingerprint: str = "f" * 16) -> AttemptFailed:
    event = Event(uuid4(), 1, entity_type, "1", "upsert", 1, None, None, None, 1, None, 0, 0, False, 0.0, None)
    failure = Failure(Reason.ES_REJECTED_DOCUMENT, "mapper_parsing_exception", fingerprint=fingerprint)
    return AttemptFailed(event, failure, None, DeadReason.NON_RETRYABLE)


def test_failures_are_grouped_by_fingerprint_and_what_a_minute_holds_back_comes_with_the_next(
    kept: KeptNotices,
) -> None:
    notices = noticing(kept)
    for _ in range(30):
        notices.handle(failed())
    notices.handle(failed("page", "e" * 16))
    notices.flush()
    assert [notice.body["data"]["count"] for notice in kept.notices] == [30, 1]
    for notice in kept.notices:
        valid(notice.body)
    notices.handle(failed())
    notices.flush()
    if len(kept.notices) == 2:  # still the same minute
        kept.notices.clear()
        notices.handle(failed())
        notices.flush()
        assert kept.notices[0].body["data"]["count"] == 2


class OneMinute(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return NOW


def test_a_target_that_flaps_within_a_minute_leaves_its_last_state(
    kept: KeptNotices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pause, resume, pause: the receiver must not believe that it is running. Other daemons do not repeat a notice."""
    monkeypatch.setattr("outbox.daemon.webhooks.datetime", OneMinute)
    for notices in (noticing(kept), noticing(kept)):
        for fact in (PAUSED, RESUMED, PAUSED):
            notices.handle(fact)
            notices.flush()
    assert kept.types() == [HookType.SINK_PAUSED, HookType.SINK_RESUMED, HookType.SINK_PAUSED]


def test_what_waits_for_the_next_minute_is_written_when_there_is_none(kept: KeptNotices) -> None:
    """After SIGTERM another daemon sends the stored notices."""
    notices = noticing(kept)
    for count in (1, 2):
        for _ in range(count):
            notices.handle(failed())
        notices.flush()
    sender = WebhookSender(kept, notices, None, None, 1.0, 3, lambda _: None)  # type: ignore[arg-type]
    stop = threading.Event()
    stop.set()
    sender.run(stop)
    assert sum(notice.body["data"]["count"] for notice in kept.notices) == 3


def test_the_readmes_verifier_works() -> None:
    text = (SCHEMAS / "README.md").read_text()
    code = text[text.index("```python") + 10 : text.index("```\n\n## Deliveries")]
    scope: dict[str, Any] = {}
    exec(code, scope)
    import time

    sent = headers(SECRET, ID, int(time.time()), BODY)
    assert scope["is_ours"](SECRET, sent, BODY)
    assert not scope["is_ours"](SECRET, sent, BODY + b" ")
