"""Facts become log lines: one JSON object per line, complete, short, and without secrets."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints
from uuid import UUID, uuid4

import pytest

from outbox import facts
from outbox.policy.event import Event
from outbox.policy.outcome import DeadReason, Failure, Reason
from outbox.telemetry.log_lines import LogSubscriber
from outbox.telemetry.log_setup import configure
from outbox.telemetry.redaction import LINE_BYTES, redactor

EVENT = Event(
    id=UUID("11111111-1111-1111-1111-111111111111"),
    seq=1,
    entity_type="article",
    entity_id="42",
    op="not-a-real-op",
    event_version=1,
    payload=b'{"canary": "PAYLOAD-CANARY"}',
    payload_bytes=28,
    routing=None,
    attempts=1,
    max_attempts=None,
    abandoned_count=0,
    replay_count=0,
    retried=False,
    age_seconds=0.1,
    traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
)
TOKEN = uuid4()
CONNECT = Failure(Reason.CONNECT, "ConnectionError: refused")


class Log:
    """A logger whose lines can be read back."""

    def __init__(self, log_format: str = "json", level: str = "info", secrets: tuple[str, ...] = ()) -> None:
        self.stream = io.StringIO()
        self.logger = configure(log_format, level, "proj", "w1", secrets=secrets, stream=self.stream)
        self.tell = LogSubscriber(self.logger).handle

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture(autouse=True)
def root_logging_as_it_was() -> Iterator[None]:
    """The set-up routes the libraries' logging into ours; other tests get theirs back."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before, level


def settled(token: UUID = TOKEN, **counts: int) -> facts.BatchSettled:
    names = ("done", "retried", "released", "failed", "superseded", "missing", "lost")
    every: dict[str, Any] = {**dict.fromkeys(names, 0), **counts}
    return facts.BatchSettled(token=token, lane=0, duration_seconds=0.02, settle_seconds=0.01, **every)


LINES: list[tuple[facts.Fact, str, dict[str, Any]]] = [
    (facts.WorkerStarted("w1", "0.1.0", 2, "articles"), "worker.started", {"lanes": 2, "version": "0.1.0"}),
    (facts.WorkerDraining("SIGTERM", 25.0), "worker.draining", {"reason": "SIGTERM"}),
    (facts.WorkerStopped(True, 0, 12.34), "worker.stopped", {"clean": True, "uptime_seconds": 12.3}),
    (facts.BatchClaimed(TOKEN, 0, 500, 0.0042), "batch.claimed", {"counts": {"claimed": 500}, "duration_ms": 4.2}),
    (settled(done=500), "batch.settled", {"counts": {"done": 500}, "duration_ms": 20.0, "batch": str(TOKEN)}),
    (
        facts.AttemptFailed(EVENT, CONNECT, 1.5),
        "event.retry_scheduled",
        {"reason": "connect", "attempts": 1, "trace_id": "a" * 32, "retry_seconds": 1.5},
    ),
    (facts.EventDiscarded(EVENT.id, "article", "42", "alice", "spam"), "event.discarded", {"by": "alice"}),
    (facts.LeaseLost(TOKEN, 3, "settle"), "lease.lost", {"counts": {"lost": 3}, "where": "settle"}),
    (
        facts.Reclaimed(7, 7, 0),
        "Reclaimed 7 stuck outbox events (expired lease or max processing exceeded)",
        {"counts": {"reclaimed": 7, "abandoned": 7, "failed": 0}},
    ),
    (facts.SinkPaused("articles", "es_auth", "401"), "sink.paused", {"reason": "es_auth", "target": "articles"}),
    (facts.SinkResumed("articles", "es_auth", 5.0), "sink.resumed", {"duration_ms": 5000.0}),
    (facts.BrakeOn("abc", "es_rejected_document", "bad"), "brake.on", {"remedy": "outbox resume --let-fail abc"}),
    (facts.BrakeOff("abc", 10), "brake.off", {"held": 10}),
    (facts.IndexVerified({"stale": 1}, 5, 0.1), "verify.done", {"level": "warning"}),
    (facts.Warned("x.y", "look", {"level": 3}), "x.y", {"message": "look", "level": "warning", "level_": 3}),
    (facts.EventsReplayed(TOKEN, "cli", 5, 1, "alice"), "replay.dispatched", {"by": "alice"}),
    (facts.ReplaySettled(TOKEN, "settled", 4, 1, 0, 3.0), "replay.settled", {"status": "settled"}),
    (facts.TablePruned("search_outbox_events", 500, True, 0.1), "prune.done", {"counts": {"pruned": 500}}),
    (facts.WebhookTried("sink.paused", "failed", 2, "timeout"), "webhook.failed", {"error": "timeout"}),
]
# Facts that show only as a metric or on /readyz.
SILENT = {
    facts.Beat, facts.BacklogSampled, facts.PrunePassed, facts.SchemaChecked, facts.SinkProbed, facts.StreamSampled,
    facts.StreamSeen,
}  # fmt: skip


@pytest.mark.parametrize(("fact", "event", "fields"), LINES, ids=lambda part: part if isinstance(part, str) else "")
def test_a_fact_becomes_its_line(fact: facts.Fact, event: str, fields: dict[str, Any]) -> None:
    log = Log(level="debug")
    log.tell(fact)
    (line,) = log.lines
    assert line["event"] == event
    assert fields.items() <= line.items()


def made(kind: type[facts.Fact]) -> facts.Fact:
    """A fact of this kind, each field by its type."""
    plain = {"str": "x", "int": 1, "float": 1.0, "bool": True, "UUID": TOKEN, "Event": EVENT, "Failure": CONNECT}
    given: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        spelt = getattr(hint, "__name__", str(hint))
        if name != "line":
            given[name] = {"x": 1} if spelt == "Mapping" else [] if spelt == "Sequence" else plain.get(spelt)
    return kind(**given)


@pytest.mark.parametrize("kind", [k for k in facts.Fact.__subclasses__() if k is not facts.AccessJudged])
def test_every_line_can_be_made(kind: type[facts.Fact]) -> None:
    """A misspelt attribute in the declaration of a line is found only where the line is made."""
    log = Log(level="debug")
    log.tell(made(kind))
    assert len(log.lines) == (kind not in SILENT)


def test_after_twenty_retries_of_a_batch_one_line_says_how_many_more(log: Log) -> None:
    log.tell(facts.BatchClaimed(TOKEN, 0, 500, 0.01))
    for _ in range(500):
        log.tell(facts.AttemptFailed(EVENT, CONNECT, 1.0))
    log.tell(settled(retried=500))
    retries = [line for line in log.lines if line["event"] == "event.retry_scheduled"]
    assert len(retries) == 21
    assert retries[-1]["counts"] == {"more": 480}
    assert {line["batch"] for line in retries} == {str(TOKEN)}


SECRETS = [
    ("postgresql://outbox:CANARY@db:5432/x", "a DSN"),
    ("postgresql+psycopg://outbox:CAN@ARY/:CANARY@db/x", "a DSN whose password holds @, / and :"),
    ("host=db password=CANARY user=x", "libpq's keywords"),
    ("host=db password='CANARY x' user=x", "libpq's keywords, quoted"),
    ("PGPASSWORD=CANARY", "an environment variable"),
    ("Authorization: ApiKey CANARY==", "an API key"),
    ("authorization: Bearer CANARY.x-y", "a token"),
    ("{'Authorization': 'Basic CANARYCANARY'}", "a header in a dictionary"),
    ("authorization: basic CANARY", "a header in small letters"),
    ('{"api_key": "CANARY"}', "an API key in JSON"),
    ("token=CANARY&x=1", "a query"),
    ("it was whsec_GIVENSECRET", "a secret that the process was given"),
    ("it was my%2Fgiven-password or my/given-password", "the password of a DSN that the process was given, alone"),
]


@pytest.mark.parametrize(("text", "what"), SECRETS, ids=[what for _, what in SECRETS])
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_secret_reaches_a_line(log_format: str, text: str, what: str) -> None:
    given = ("whsec_GIVENSECRET", "postgresql://u:my%2Fgiven-password@h/db")
    log = Log(log_format, secrets=given)
    log.tell(facts.AttemptFailed(EVENT, Failure(Reason.CONNECT, f"refused: {text}"), 1.0))
    log.tell(facts.Warned("x.y", text, {"where": text}))
    logging.getLogger("elastic_transport").warning("failed: %s", text)
    for canary in ("CANARY", "GIVENSECRET", "given-password"):
        assert canary not in log.text
    assert log.text.count("\n") == 3


def test_a_password_that_is_a_part_of_a_public_name_is_masked_where_it_stands_as_a_secret_and_not_in_the_name() -> None:
    redact = redactor(["postgresql://app:articles@h/db", "wordloom"], names=["articles_v2", "wordloom-dev-index"])
    for name in ("articles_v2", "index articles_v2-000001, alias articles_v2", "wordloom-dev-index", "x.articles-7."):
        assert redact(name) == name
    assert redact("refused: articles") == "refused: ***"
    assert redact("articles.") == "***."
    assert redact("'wordloom' is wrong, password=wordloom") == "'***' is wrong, password=***"
    assert "articles" not in redact("at postgresql://app:articles@h/db")


def test_no_payload_reaches_a_line(log: Log) -> None:
    log.tell(facts.AttemptFailed(EVENT, CONNECT, None, DeadReason.MAX_ATTEMPTS_EXCEEDED))
    assert "PAYLOAD-CANARY" not in log.text


HOSTILE = 'a\x1b[31m\r\n{"event":"worker.stopped"}\x00\x9b\u202e\u2028\ud800'


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_hostile_id_cannot_forge_a_line(log_format: str) -> None:
    log = Log(log_format)
    log.tell(facts.AttemptFailed(EVENT._replace(entity_id=HOSTILE, entity_type=HOSTILE), CONNECT, 1.0))
    assert len(log.text.splitlines()) == 1
    assert log.text.rstrip("\n").isprintable() or log_format == "console"
    for character in "\x1b\r\x00\x9b\u202e\u2028\ud800":
        assert character not in log.text


def test_a_line_is_at_most_eight_kilobytes_and_still_json(log: Log) -> None:
    long = Failure(Reason.UNKNOWN, "é" * 100_000)
    log.tell(facts.AttemptFailed(EVENT._replace(entity_id="x" * 50_000, entity_type="y\x01" * 9_000), long, 1.0))
    log.tell(facts.Warned("many.fields", "m" * 9_000, {f"f{n}": "v" * 500 for n in range(100)}))
    for raw, line in zip(log.text.splitlines(), log.lines, strict=True):
        assert len(raw.encode()) <= LINE_BYTES
        assert (line["projection"], line["worker"]) == ("proj", "w1")


def test_a_subscriber_that_breaks_is_reported_and_stops_nothing() -> None:
    log = Log()
    announce = facts.Announcer(on_error=LogSubscriber(log.logger).broken_subscriber)
    seen: list[facts.Fact] = []

    def broken(_: facts.Fact) -> None:
        raise ValueError("metric gone")

    subscribers: list[Callable[[facts.Fact], None]] = [broken, seen.append]
    for subscriber in subscribers:
        announce.subscribe(subscriber)
    announce(facts.Beat("lane-0"))
    assert seen == [facts.Beat("lane-0")]
    assert log.lines[0]["error"] == "ValueError: metric gone"


def test_lines_that_would_say_nothing_are_left_out(log: Log) -> None:
    log.tell(facts.BatchClaimed(TOKEN, 0, 0, 0.001))
    log.tell(facts.Reclaimed(0, 0, 0))
    log.tell(facts.TablePruned("search_outbox_events", 0, True, 0.1))
    log.tell(facts.BulkSent("ok", {"written": 500}, {}, 100, 0.01, "articles"))
    log.tell(facts.WebhookTried("sink.paused", "delivered", 1))
    assert log.text == ""
