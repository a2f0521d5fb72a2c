"""What becomes of an event while an index is being rebuilt: both must have it, and production never stops for one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from outbox.errors import DatabaseDown, NothingSent
from outbox.facts import Fact, Warned
from outbox.policy.backoff import Backoff
from outbox.policy.outcome import WRITTEN, Code, Failure, Outcome, Reason, Stale
from outbox.policy.settle import RetryLater, RetryPolicy, settle
from outbox.ports import BulkAction, Mirroring, Refusal, WriteReport
from outbox.reindex.second_target import MOST_REFUSALS, PATIENCE_SECONDS, STALE_SECONDS, SecondTarget, StreamTarget
from tests.fixtures.events import Time, an_event
from tests.fixtures.sinks import MemorySink

OLD, NEW = "articles", "articles-v2"
GONE = Failure(Reason.ES_INDEX_MISSING, "404 no such index", whole=True)
BUSY = Failure(Reason.ES_429, "429 later")


@dataclass
class FakeRebuilds:
    """The database's side."""

    now: Mirroring | None = None
    confirmed: list[int] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    refused_count: int = 0
    given_up: list[str] = field(default_factory=list)
    away: bool = False

    def mirroring(self) -> Mirroring | None:
        if self.away:
            raise DatabaseDown("away")
        return self.now

    def confirm(self, revision: int) -> None:
        self.confirmed.append(revision)

    def refused(self, rebuild: int, refusals: Sequence[Refusal], count: int) -> None:
        self.refusals.extend(refusals)
        self.refused_count += count

    def give_up(self, mirroring: Mirroring, why: str) -> bool:
        if self.away:
            raise DatabaseDown("away")
        if self.now is not None and self.now.revision != mirroring.revision:
            return False
        self.given_up.append(why)
        self.now = mirroring._replace(revision=mirroring.revision + 1, indexes=())
        return True


@dataclass
class Bench:
    rebuilds: FakeRebuilds = field(default_factory=FakeRebuilds)
    sink: MemorySink = field(default_factory=MemorySink)
    clock: Time = field(default_factory=Time)
    facts: list[Fact] = field(default_factory=list)
    second: SecondTarget = field(init=False)

    def __post_init__(self) -> None:
        rebuilds: Any = self.rebuilds
        self.second = SecondTarget(self.sink, rebuilds, self.facts.append, self.clock)

    def mirror(self, *indexes: str, revision: int = 7) -> None:
        self.rebuilds.now = Mirroring(1, revision, OLD, indexes or (NEW,))
        self.second.tend()

    def write(self, version: int = 1, body: bytes | None = b"{}", index: str = OLD) -> Outcome:
        return self.report(version, body, index).outcomes[0]

    def report(self, version: int = 1, body: bytes | None = b"{}", index: str = OLD) -> WriteReport:
        return self.second.write([BulkAction(index, "article:1", version, None, body)], 10.0)

    def refuse_in(self, index: str, failure: Failure) -> None:
        refuse: Callable[[BulkAction], Failure | None] = lambda action: failure if action.index == index else None  # noqa: E731
        self.sink.refuse = refuse

    def has(self, index: str) -> bool:
        return (index, "article:1") in self.sink.documents


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_around_a_swap_a_write_goes_to_both_by_name(bench: Bench) -> None:
    bench.mirror(NEW, "articles-v1")
    bench.write()
    assert bench.has(NEW)
    assert bench.has("articles-v1")


def test_what_is_stale_in_the_target_still_reaches_the_new_index(bench: Bench) -> None:
    bench.write(5)
    bench.mirror()
    assert bench.write(4) == Stale(5)
    assert bench.has(NEW)


def test_a_loss_that_could_not_be_recorded_makes_the_event_wait(bench: Bench) -> None:
    bench.mirror()
    bench.refuse_in(NEW, GONE)
    bench.rebuilds.away = True
    outcome = bench.write()
    assert isinstance(outcome, Failure)
    assert outcome.second
    assert outcome.reason is Reason.UNKNOWN


def test_a_second_index_that_takes_nothing_for_a_minute_ends_the_rebuild(bench: Bench) -> None:
    bench.mirror()
    bench.refuse_in(NEW, BUSY)
    for _ in range(int(PATIENCE_SECONDS)):
        assert isinstance(bench.write(), Failure)
        bench.clock.passes(1.0)
    bench.clock.passes(1.0)
    assert bench.write() is WRITTEN
    assert len(bench.rebuilds.given_up) == 1


def test_what_is_mirrored_is_known_before_it_is_confirmed(bench: Bench) -> None:
    seen: list[bool] = []

    def confirm(revision: int) -> None:
        bench.write()
        seen.append(bench.has(NEW))

    bench.rebuilds.confirm = confirm  # type: ignore[method-assign]
    bench.mirror()
    assert seen == [True]


# Records of a stream, which can be read again


@pytest.fixture
def stream(bench: Bench) -> StreamTarget:
    return StreamTarget(bench.second)


def put(stream: StreamTarget) -> None:
    stream.write([BulkAction(OLD, "article:1", 1, None, b"{}")], 10.0)


def test_a_stream_writes_on_while_the_database_is_down_and_is_not_heard(bench: Bench, stream: StreamTarget) -> None:
    bench.second.tend()
    assert bench.second.is_heard()
    bench.rebuilds.away = True
    bench.clock.passes(STALE_SECONDS + 0.1)
    put(stream)
    assert bench.sink.documents
    assert not bench.second.is_heard(), "so nothing of it is committed"
    with pytest.raises(NothingSent):
        bench.report()


def test_what_a_stream_wrote_in_silence_is_read_again_when_a_rebuild_began_meanwhile(
    bench: Bench, stream: StreamTarget
) -> None:
    bench.second.tend()
    heard: list[bool] = []
    bench.second.on_change_after_silence = lambda: heard.append(bench.second.is_heard())
    bench.clock.passes(STALE_SECONDS + 0.1)
    put(stream)
    bench.mirror()
    assert heard == [False], "asked for before anything may be committed again"
    put(stream)
    assert {index for index, _ in bench.sink.documents} == {OLD, NEW}


def test_a_change_is_confirmed_only_when_a_streams_older_requests_are_over(
    bench: Bench, stream: StreamTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild sees no lease of theirs: what they write goes to one index, and must be over before it copies."""
    bench.second.tend()
    write = bench.sink.write

    def meanwhile(actions: Sequence[BulkAction], deadline: float) -> WriteReport:
        monkeypatch.undo()
        bench.mirror(revision=9)
        assert bench.rebuilds.confirmed == []
        return write(actions, deadline)

    monkeypatch.setattr(bench.sink, "write", meanwhile)
    put(stream)
    assert bench.rebuilds.confirmed == []
    bench.second.tend()
    assert bench.rebuilds.confirmed == [9]


REFUSED = Failure(Reason.ES_REJECTED_DOCUMENT, "400 no", Code.PAYLOAD_INVALID)


def test_a_write_to_the_target_goes_to_both_and_others_to_one(bench: Bench) -> None:
    bench.mirror()
    assert bench.rebuilds.confirmed == [7]
    assert bench.write() is WRITTEN
    bench.write(index="comments")
    assert set(bench.sink.documents) == {(OLD, "article:1"), (NEW, "article:1"), ("comments", "article:1")}


def test_what_only_the_new_mapping_refuses_is_noted_and_done(bench: Bench) -> None:
    bench.mirror()
    bench.refuse_in(NEW, REFUSED)
    for version in range(1, MOST_REFUSALS + 50):
        assert bench.write(version) is WRITTEN
    bench.second.tend()
    assert bench.rebuilds.refused_count == MOST_REFUSALS + 49
    assert len(bench.rebuilds.refusals) == MOST_REFUSALS
    assert bench.rebuilds.refusals[0] == Refusal(NEW, "article:1", "400 no")
    bench.second.tend()
    assert bench.rebuilds.refused_count == MOST_REFUSALS + 49, "reported once"


@pytest.mark.parametrize("failure", [GONE, Failure(Reason.ES_BLOCKED, "403 blocked"), Failure(Reason.ES_AUTH, "403")])
def test_a_second_index_that_is_gone_or_blocked_ends_the_rebuild_and_production_goes_on(
    bench: Bench, failure: Failure
) -> None:
    bench.mirror()
    bench.refuse_in(NEW, failure)
    assert bench.write() is WRITTEN
    assert len(bench.rebuilds.given_up) == 1
    assert NEW in bench.rebuilds.given_up[0]
    assert [fact.event for fact in bench.facts if isinstance(fact, Warned)] == ["rebuild.broken"]
    bench.sink.refuse = lambda _: None
    bench.write(2)
    assert not bench.has(NEW), "nothing more is mirrored"
    assert bench.rebuilds.confirmed == [7, 8]


def test_no_event_fails_by_a_second_index_however_often_it_was_tried() -> None:
    retry = RetryPolicy(3, Backoff(1.0, 300.0))
    tried = an_event(attempts=9)
    from dataclasses import replace

    assert isinstance(settle(tried, replace(BUSY, second=True), retry, lambda: 0.5), RetryLater)
    assert not isinstance(settle(tried, BUSY, retry, lambda: 0.5), RetryLater)


def test_knowledge_that_grew_stale_is_asked_for_before_anything_is_sent(bench: Bench) -> None:
    bench.second.tend()
    bench.rebuilds.now = Mirroring(1, 3, OLD, (NEW,))
    bench.write()
    assert not bench.has(NEW), "within its time the last answer stands"
    bench.clock.passes(STALE_SECONDS + 0.1)
    bench.write(2)
    assert bench.has(NEW)
    assert bench.rebuilds.confirmed == [3]


def test_nothing_is_sent_while_nobody_can_say_whether_an_index_is_rebuilt(bench: Bench) -> None:
    bench.rebuilds.away = True
    with pytest.raises(NothingSent):
        bench.report()
    assert not bench.has(OLD)
