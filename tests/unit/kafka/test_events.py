"""Records through the real projector: what is closed, stored or handed out again, and in which order."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.errors import DatabaseDown, NotStored
from outbox.facts import LeaseLost
from outbox.kafka.events import SourceTime, StreamEvents
from outbox.kafka.partitions import LONGEST_REST_SECONDS, Partitions, Start
from outbox.policy.document import UNREADABLE
from outbox.policy.event import DELETE, UPSERT, Event
from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import Done, Failed, Released, RetryLater
from outbox.ports import BulkAction, Document, DocumentSource, Named, NewerDelete, RecordRow
from tests.fakes import NoView
from tests.fixtures.events import Time
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.records import NOW, TOPIC, MadeRecord, a_record
from tests.fixtures.sinks import MemorySink

REFUSED = Failure(Reason.ES_REJECTED_DOCUMENT, "no", fingerprint="f")
BUSY = Failure(Reason.ES_429, "later", fingerprint="b")
AWAY = Failure(Reason.CONNECT, "gone", whole=True)


@dataclass
class MemoryRecords:
    """PostgreSQL's side. It remembers when each row came, against what had been committed by then."""

    rows: dict[str, RecordRow] = field(default_factory=dict)
    away: bool = False
    deletes: dict[str, int] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)
    before: Callable[[], None] = lambda: None

    def store(self, rows: Sequence[RecordRow]) -> None:
        self.before()
        if self.away:
            raise DatabaseDown("away")
        for row in rows:
            self.rows.setdefault(row.key, row)
            if isinstance(row.settlement, Done):
                self.deletes[row.event.entity_id] = row.event.event_version

    def newer_deletes(self, events: Sequence[Event]) -> Mapping[UUID, NewerDelete]:
        self.asked.append(len(events))
        if self.away:
            raise DatabaseDown("away")
        newer = {event.id: self.deletes.get(event.entity_id, -1) for event in events}
        return {e.id: NewerDelete(newer[e.id], None) for e in events if newer[e.id] > e.event_version}

    def open_events(self, topic: str) -> Mapping[int, int]:
        if self.away:
            raise DatabaseDown("away")
        waiting = (row for row in self.rows.values() if not isinstance(row.settlement, Done | Failed))
        return Counter(int(row.key.split(":")[2]) for row in waiting)

    def unseen(self, transactions: Iterable[int]) -> set[int]:
        if self.away:
            raise DatabaseDown("away")
        return self.running.intersection(transactions)

    def deleted(self, events: Sequence[Event]) -> set[UUID]:
        return set()

    def last_version(self) -> int:
        return 1_000_000

    def raise_version(self, seen: int) -> int | None:
        return None

    def now(self) -> float:
        if self.away:
            raise DatabaseDown("away")
        return NOW


class Bench:
    """One worker over partitions that the test fills."""

    def __init__(
        self, *partitions: int, batch_size: int = 500, documents: DocumentSource | None = None, **options: Any
    ) -> None:
        self.sink = MemorySink()
        self.records = MemoryRecords()
        self.clock = Time()
        self.stopped: frozenset[str] = frozenset()
        self.partitions = Partitions(self.clock, most_bytes=10_000_000, batch_size=batch_size)
        self.store = StreamEvents(
            self.partitions,
            self.records,
            lambda: NOW,
            batch_bytes=1_000_000,
            stopped_types=lambda: self.stopped,
            **options,
        )
        self.worker = InProcess(
            Parts(self.store, self.sink, documents or NoView(), clock=self.clock, batch_size=batch_size)
        )
        for number in partitions or (0,):
            self.partitions.assign(TOPIC, number, Start(0), 0)  # of a former owner, below, there is none
        for partition in self.partitions.all():
            partition.again_below = 0

    def arrive(self, *records: MadeRecord) -> None:
        self.partitions.arrive(records)

    def take(self, *records: MadeRecord) -> None:
        self.arrive(*records)
        self.worker.run()

    def committable(self, number: int = 0) -> int:
        (found,) = [p.ledger.committable() for p in self.partitions.all() if p.number == number]
        return found

    def refuse(self, *entity_ids: str, failure: Failure = REFUSED) -> None:
        bad = {f"article:{id}" for id in entity_ids}
        refuse: Callable[[BulkAction], Failure | None] = lambda action: failure if action.id in bad else None  # noqa: E731
        self.sink.refuse = refuse

    def ids(self) -> set[str]:
        return {id.removeprefix("article:") for _, id in self.sink.documents}

    def stored(self) -> list[str]:
        return [key.removeprefix(f"kafka:{TOPIC}:") for key in self.records.rows]


def test_the_version_of_a_document_is_its_events() -> None:
    bench = Bench()
    bench.take(a_record(7, "a", version=3))
    assert bench.sink.documents["articles", "article:a"][0] == 3


def test_a_delete_is_a_row_before_its_offset_passes() -> None:
    bench = Bench()
    bench.records.before = lambda: seen.append(bench.committable())
    seen: list[int] = []
    bench.take(a_record(0, "a"), a_record(1, "b", DELETE, version=9))
    assert seen == [0]
    assert bench.committable() == 2
    (row,) = bench.records.rows.values()
    assert (row.key, row.event.op, row.event.event_version) == (f"kafka:{TOPIC}:0:1", DELETE, 9)
    assert isinstance(row.settlement, Done)


def test_a_record_that_a_busy_node_refuses_three_times_is_a_row() -> None:
    bench = Bench()
    bench.refuse("1", failure=BUSY)
    bench.arrive(*(a_record(n, str(n)) for n in range(3)))
    for seconds in (0.25, 1.0):
        bench.worker.run()
        assert (bench.stored(), bench.committable(), bench.ids()) == ([], 1, {"0", "2"})
        assert bench.worker.run() is None, "it rests"
        bench.clock.passes(seconds)
    bench.worker.run()
    (row,) = bench.records.rows.values()
    assert isinstance(row.settlement, RetryLater)
    assert (bench.stored(), bench.committable()) == (["0:1"], 3)
    (partition,) = bench.partitions.all()
    assert partition.again == {}, "what is closed is forgotten"


def test_without_postgresql_the_first_exception_stops_its_partition_and_no_other() -> None:
    bench = Bench(0, 1)
    bench.records.away = True
    bench.refuse("bad")
    bench.arrive(a_record(0, "a"), a_record(1, "bad"), a_record(2, "c"))
    with pytest.raises(NotStored):
        bench.worker.run()
    assert bench.committable() == 1, "what was answered below the exception passes, nothing above it"
    bench.take(*(a_record(n, f"x{n}", number=1) for n in range(10, 13)))
    assert (bench.committable(0), bench.committable(1)) == (1, 13)
    bench.records.away = False
    bench.clock.passes(LONGEST_REST_SECONDS)
    bench.worker.run()
    assert (bench.stored(), bench.committable(0), bench.ids()) == (["0:1"], 3, {"a", "c", "x10", "x11", "x12"})


def test_records_of_a_shard_that_is_down_become_rows_while_others_are_taken() -> None:
    """Every partition has some of them: otherwise one shard would stop the topic."""
    bench = Bench()
    bench.refuse("red", failure=Failure(Reason.ES_5XX, "unavailable shards", whole=True, shard=True, fingerprint="s"))
    bench.take(a_record(0, "a"), a_record(1, "red"), a_record(2, "c"))
    assert (bench.stored(), bench.committable(), bench.ids()) == (["0:1"], 3, {"a", "c"})
    bench.take(a_record(3, "red"))
    assert (bench.stored(), bench.committable()) == (["0:1"], 3), "with no other answer it may be all shards"


def test_newer_deletes_are_asked_for_again_when_postgresql_did_not_answer_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that was stopped has just written an old version: nobody but it would take that back."""
    bench = Bench()
    bench.arrive(a_record(0, "a", version=5, occurred_at=int((NOW - 40) * 1e6)))
    ask, answers = bench.records.newer_deletes, iter([False, True, False])

    def asked(events: Sequence[Event]) -> Mapping[UUID, NewerDelete]:
        if next(answers, False):
            raise DatabaseDown("a connection that had died meanwhile")
        return ask(events)

    def frozen(action: BulkAction) -> None:
        bench.records.deletes["a"] = 6  # by the next owner, while this one was stopped
        bench.clock.passes(31)

    monkeypatch.setattr(bench.records, "newer_deletes", asked)
    bench.sink.refuse = frozen
    bench.worker.run()
    assert bench.ids() == set()


@pytest.mark.parametrize("ahead_seconds", [-40, 1, 3600, 10 * 365 * 86_400])
def test_an_old_upsert_and_one_of_a_clock_that_is_ahead_are_checked_against_newer_deletes(ahead_seconds: int) -> None:
    """It would seem young for as long as its clock is ahead."""
    bench = Bench()
    bench.records.deletes["a"] = 100
    bench.take(a_record(0, "a", version=50, occurred_at=int((NOW + ahead_seconds) * 1e6)), a_record(1, "b"))
    assert (bench.ids(), bench.committable(), bench.worker.last.superseded) == ({"b"}, 2, 1)
    assert min(bench.worker.last.first_ages_seconds) >= 0
    assert set(bench.records.asked) == {2}, "a query for the whole batch, not for each of it"


class View:
    """A view in a database that may be down. It has every article."""

    down = False

    def draw(self) -> int:
        return 7

    def exists(self) -> bool:
        return True

    def types_in_view(self, types: Sequence[str]) -> set[str]:
        return set(types)

    def load(self, events: Sequence[Named], *, whole: bool = False) -> Mapping[UUID, Document]:
        if self.down:
            raise DatabaseDown("terminating connection")
        return {event.id: Document(b"{}", 2, None) for event in events}


def test_a_record_whose_lookup_postgresql_did_not_answer_is_handed_out_again() -> None:
    """It has no lease that would end: without that its partition would wait until the next rebalance."""
    view = View()
    bench = Bench(documents=view)
    bench.arrive(a_record(0, "a", "refresh", value=None), a_record(1, "b", "refresh", value=None))
    view.down = True
    bench.worker.lane.step()
    assert (bench.sink.documents, bench.committable()) == ({}, 0)
    bench.worker.lane.step()
    assert bench.partitions.all()[0].rests == 1, "it rests, instead of asking all the time"
    view.down = False
    bench.clock.passes(LONGEST_REST_SECONDS)
    bench.worker.run()
    assert (bench.ids(), bench.committable()) == ({"a", "b"}, 2)


def test_what_a_former_owner_may_have_sent_is_checked_however_young_it_is() -> None:
    bench = Bench()
    bench.partitions.revoke([0])
    bench.partitions.assign(TOPIC, 0, Start(10), 100)
    bench.take(a_record(10, "a"))
    assert bench.records.asked, "the first records of an assignment count as sent before"


def test_a_refresh_of_another_database_fails_and_deletes_nothing() -> None:
    """Looked up here, its entity is gone. What brings its payload is written, whoever wrote it."""
    bench = Bench(database="here")
    bench.take(
        a_record(0, "0", value=None, behind=(None, "there")),
        a_record(1, "1", behind=(None, "there")),
        a_record(2, "2"),
    )
    assert (bench.stored(), bench.committable(), bench.ids()) == (["0:0"], 3, {"1", "2"})
    (row,) = bench.records.rows.values()
    assert row.event.op == UNREADABLE + "a refresh of another database"


def test_records_of_a_paused_entity_type_rest_in_the_topic_and_other_partitions_go_on() -> None:
    bench = Bench(0, 1)
    bench.stopped = frozenset({"block"})
    block = a_record(1, "b", entity_type="block", key=b"block:b")
    bench.arrive(a_record(0, "a"), block, a_record(2, "c"), a_record(3, "d", number=1))
    while bench.worker.run() is not None:
        pass
    assert (bench.ids(), bench.stored()) == ({"a", "d"}, [])
    assert (bench.committable(0), bench.committable(1)) == (1, 4)
    bench.clock.passes(1.0)
    assert bench.worker.run() is None, "the pause goes on"
    bench.stopped = frozenset()
    bench.clock.passes(1.0)
    bench.worker.run()
    assert (bench.committable(0), bench.stored()) == (3, [])


def test_a_partition_with_many_open_events_rests_and_the_topic_keeps_what_follows() -> None:
    """A mapping that refuses everything: the brake holds what is over its limit, and rows would be without end."""
    bench = Bench(0, 1, batch_size=50, most_open=100)
    bench.sink.refuse = lambda action: BUSY if action.id < "article:5" else None
    bench.arrive(*(a_record(n, f"{n:05}") for n in range(1_000)))
    bench.arrive(*(a_record(n, f"7{n:04}", number=1) for n in range(100)))
    for _ in range(100):
        bench.worker.run(limit=50)
        bench.clock.passes(1.0)
        bench.store.tend(TOPIC, bench.clock())
    assert (len(bench.records.rows), bench.committable(0), bench.committable(1)) == (100, 100, 100)
    (held,) = [partition.held for partition in bench.partitions.all() if partition.held]
    assert held == "100 of its events wait in PostgreSQL, and 100 may (KAFKA_MAX_OPEN_EVENTS)"
    bench.records.rows.clear()  # the table lane has done them
    bench.refuse()
    for _ in range(30):
        bench.store.tend(TOPIC, bench.clock())
        bench.worker.run(limit=50)
        bench.clock.passes(1.0)
    assert bench.committable(0) == 1_000


def test_the_first_batch_of_a_suspect_partition_becomes_rows_unsent_and_the_next_one_is_sent() -> None:
    bench = Bench()
    (partition,) = bench.partitions.all()
    partition.suspect = True
    bench.arrive(a_record(0, "a"), a_record(1, "b"))
    bench.records.away = True
    with pytest.raises(NotStored):
        bench.worker.claim(500)
    assert (bench.committable(), bench.stored()) == (0, [])
    bench.records.away = False
    bench.clock.passes(60)
    bench.worker.run()
    assert (bench.ids(), bench.stored(), bench.committable()) == (set(), ["0:0", "0:1"], 2)
    assert [row.settlement for row in bench.records.rows.values()] == [None, None]
    bench.take(a_record(2, "c"))
    assert (bench.ids(), bench.committable()) == ({"c"}, 3)


OUTCOMES = st.sampled_from(["written", "refused", "busy", "away", "database away", "error", "revoked"])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(OUTCOMES, st.integers(1, 4)), min_size=1, max_size=25),
    st.lists(st.sampled_from([UPSERT, DELETE]), min_size=1, max_size=20),
)
def test_no_offset_may_be_committed_below_which_a_record_is_neither_answered_nor_stored(
    turns: list[tuple[str, int]], ops: list[str]
) -> None:
    """Over every order of outages, refusals, deaths and revocations."""
    bench = Bench(batch_size=4)
    answered: dict[str, int] = {}
    bench.arrive(*(a_record(n, str(n), op, version=n + 1) for n, op in enumerate(ops)))
    committed = 0
    for outcome, limit in turns:
        bench.sink.away = AWAY if outcome == "away" else None
        bench.records.away = outcome == "database away"
        bench.refuse(*(map(str, range(0, 20, 3)) if outcome in ("refused", "database away") else ()))
        if outcome == "busy":
            bench.refuse(*map(str, range(20)), failure=BUSY)
        claimed = bench.worker.claim(limit)
        if outcome == "revoked":
            bench.partitions.revoke([0])
            bench.partitions.assign(TOPIC, 0, Start(committed), len(ops))
            bench.arrive(*(a_record(n, str(n), op, version=n + 1) for n, op in enumerate(ops) if n >= committed))
        if claimed.events:
            try:
                if outcome == "error":
                    bench.store.abandon(claimed.token, [e.id for e in claimed.events], "error")
                else:
                    bench.worker.projector.project(claimed, 0)
            except (NotStored, DatabaseDown):
                bench.store.release(claimed.token)
        answered |= {id.removeprefix("article:"): v for (_, id), (v, _) in bench.sink.documents.items()}
        bench.clock.passes(LONGEST_REST_SECONDS)
        committed = bench.committable()
        stored = {row.event.entity_id for row in bench.records.rows.values()}
        for n, op in list(enumerate(ops))[:committed]:
            assert str(n) in stored or (op == UPSERT and str(n) in answered), (n, op, committed)


def test_a_lookup_waits_for_its_transaction_and_what_brings_its_payload_does_not() -> None:
    def record(n: int, op: str, transaction: int) -> MadeRecord:
        value = b"{}" if op == UPSERT else None
        return a_record(n, str(n), op, value=value, number=n // 10, behind=(transaction,))

    bench = Bench(0, 1)
    bench.records.running = {7, 8}
    bench.arrive(record(0, UPSERT, 7), record(1, DELETE, 6), record(2, DELETE, 7), record(3, UPSERT, 6))
    bench.arrive(record(10, UPSERT, 8))
    while bench.worker.run() is not None:
        pass
    assert (bench.committable(0), bench.committable(1)) == (2, 11)
    bench.clock.passes(1.0)
    bench.records.away = True
    assert bench.worker.run() is None, "it cannot be known now"
    bench.records.away = False
    bench.records.running = set()
    for _ in range(9):
        bench.clock.passes(1.0)
        bench.worker.run()
    assert bench.committable(0) == 4


CLOSED = Failure(Reason.ES_INDEX_MISSING, "no index", whole=True)


def test_a_record_that_is_refused_is_a_row_before_its_offset_passes_and_its_neighbours_are_done() -> None:
    bench = Bench()
    seen: list[int] = []
    bench.records.before = lambda: seen.append(bench.committable())
    bench.refuse("1")
    bench.take(*(a_record(n, str(n)) for n in range(3)))
    assert seen == [0]
    assert (bench.stored(), bench.committable(), bench.ids()) == (["0:1"], 3, {"0", "2"})
    assert isinstance(bench.records.rows[f"kafka:{TOPIC}:0:1"].settlement, Failed)


@pytest.mark.parametrize("failure", [AWAY, CLOSED])
def test_in_an_outage_nothing_passes_nothing_is_stored_and_it_is_sent_when_it_is_over(failure: Failure) -> None:
    bench = Bench()
    bench.sink.away = failure
    bench.take(a_record(0, "a"), a_record(1, "b"))
    assert (bench.stored(), bench.committable(), bench.sink.documents) == ([], 0, {})
    bench.sink.away = None
    bench.clock.passes(20)
    bench.worker.run()
    assert (bench.ids(), bench.committable()) == ({"a", "b"}, 2)
    assert all(event.attempts == 1 for event in bench.worker.claim().events)


def test_what_the_brake_holds_is_stored_to_be_tried_later_so_it_holds_up_nobody() -> None:
    bench = Bench()
    bench.take(*(a_record(n, key=b"1") for n in range(80)), a_record(80, "good"))
    verdicts = [type(row.settlement) for row in bench.records.rows.values()]
    assert (verdicts.count(Failed), verdicts.count(Released)) == (50, 30)
    assert (bench.committable(), bench.ids()) == (81, {"good"})


def test_a_partition_whose_exception_cannot_be_stored_rests_longer_each_time() -> None:
    bench = Bench()
    bench.records.away = True
    bench.refuse("bad")
    bench.arrive(a_record(0, "bad"))
    waits = []
    for _ in range(6):
        with pytest.raises((NotStored, DatabaseDown)):
            bench.worker.lane._advance()
        (partition,) = bench.partitions.all()
        waits.append(partition.rest_until - bench.clock())
        assert bench.worker.claim().events == ()
        bench.clock.passes(waits[-1])
    assert waits == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_revoked_partition_is_neither_stored_nor_closed_and_its_records_are_said_to_be_lost() -> None:
    bench = Bench()
    bench.refuse("bad")
    bench.arrive(a_record(0, "a"), a_record(1, "bad"))
    claimed = bench.worker.claim()
    assert bench.partitions.revoke([0]) == 2
    bench.partitions.assign(TOPIC, 0, Start(0), 2)
    assert not bench.store.renew(claimed.token)
    bench.worker.projector.project(claimed, 0)
    assert bench.committable() == 0, "the new assignment knows nothing of it"
    assert bench.stored() == []
    (lost,) = bench.worker.of(LeaseLost)
    assert lost.count == 2


def test_a_batch_that_ends_in_an_error_becomes_rows_that_are_claimed_apart() -> None:
    bench = Bench()
    bench.arrive(a_record(0, "a"), a_record(1, "b"))
    claimed = bench.worker.claim()
    taken = bench.store.abandon(claimed.token, [e.id for e in claimed.events], "ValueError while it was worked on")
    assert (taken.rows, bench.stored(), bench.committable()) == (2, ["0:0", "0:1"], 2)
    assert [row.settlement for row in bench.records.rows.values()] == [None, None]


def test_the_same_event_twice_in_a_row_comes_in_two_batches() -> None:
    """A connector that was restarted sends it again; a verdict goes by the event's id."""
    bench = Bench()
    twice = a_record(0, "a", id="00000000-0000-0000-0000-000000000001")
    bench.arrive(twice, a_record(1, "b"), a_record(2, "a", id="00000000-0000-0000-0000-000000000001", version=1))
    assert [event.seq for event in bench.worker.claim().events] == [0, 1]
    assert bench.committable() == 0


def test_more_than_the_span_is_not_handed_out_above_a_record_that_stays() -> None:
    """So that the next owner knows what may have been sent before."""
    bench = Bench(batch_size=10)
    bench.refuse("0", failure=Failure(Reason.ES_5XX, "moving", moving=True))
    bench.arrive(*(a_record(n, str(n)) for n in range(100)))
    for _ in range(30):
        bench.worker.run(10)
        bench.clock.passes(20)
    assert bench.committable() == 0
    assert len(bench.ids()) <= 41


def test_the_databases_clock_goes_on_while_it_is_down_and_is_not_the_machines() -> None:
    records, clock = MemoryRecords(), Time()
    time = SourceTime(records.now, clock)
    time.tend()
    assert time.now() == NOW
    clock.passes(3600)
    records.away = True
    with pytest.raises(DatabaseDown):
        time.tend()
    assert time.now() == NOW + 3600
