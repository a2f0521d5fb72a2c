"""What a stream leaves in PostgreSQL: one row per exception, and a guard that knows every delete."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from outbox.errors import DatabaseDown, NotStored
from outbox.kafka.events import StreamEvents
from outbox.kafka.partitions import Partitions, Start
from outbox.kafka.record import read
from outbox.kafka.records import ColumnsTooShort, ForeignExceptions, PostgresRecords
from outbox.policy.document import UNREADABLE
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import DeadReason, Failure, Reason
from outbox.policy.settle import DONE, HOLD_SECONDS, Failed, Released, RetryLater, Settlement
from outbox.ports import BulkAction, RecordRow
from tests.fixtures.events import Time
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.records import TOPIC, MadeRecord, a_record, uuid_of
from tests.fixtures.sinks import MemorySink

REFUSED = Failure(Reason.ES_REJECTED_DOCUMENT, "no", fingerprint="f", detail={"why": "mapping"})
BUSY = Failure(Reason.ES_429, "later", fingerprint="b")
FAILED = Failed(REFUSED, DeadReason.NON_RETRYABLE)


@pytest.fixture
def records(queue: EventTable) -> PostgresRecords:
    return PostgresRecords(queue.pool(), queue.store(), owner="w1", group="g")


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


def a_row(record: MadeRecord, settlement: Settlement | None, topic: str = TOPIC) -> RecordRow:
    found = read(record, 0.0)
    return RecordRow(f"kafka:{topic}:{record.number}:{record.n}", found.event, settlement, found.occurred_at)


class Stream:
    """A worker over one partition, on real rows; `again` is another one that begins where the test says."""

    def __init__(self, queue: EventTable, sink: MemorySink) -> None:
        self.queue, self.sink = queue, sink
        self.now = float(queue.value("select extract(epoch from clock_timestamp())"))
        self.clock = Time()
        self.records = PostgresRecords(queue.pool(), queue.store(), owner="w1", group="g")
        self.log: list[MadeRecord] = []
        self.again(0)

    def again(self, offset: int) -> None:
        self.partitions = Partitions(self.clock, most_bytes=10_000_000, batch_size=500)
        self.partitions.assign(TOPIC, 0, Start(offset), len(self.log))
        store = StreamEvents(self.partitions, self.records, lambda: self.now, batch_bytes=8_000_000)
        self.worker = InProcess(Parts(store, self.sink, clock=self.clock))
        self.partitions.arrive(record for record in self.log if record.n >= offset)

    def put(self, entity_id: str, op: str = "upsert", age_seconds: float = 0.0, **more: Any) -> MadeRecord:
        at = int((self.now - age_seconds) * 1e6)
        record = a_record(len(self.log), entity_id, op, occurred_at=at, **more)
        self.log.append(record)
        self.partitions.arrive([record])
        return record

    def run(self) -> None:
        while self.worker.run() is not None:
            self.clock.passes(1.0)

    def table(self) -> InProcess:
        """The table lane of the same daemon."""
        return InProcess(Parts(self.queue.store(), self.sink, clock=self.clock))

    def refuse(self, *entity_ids: str, failure: Failure = REFUSED) -> None:
        bad = {f"article:{id}" for id in entity_ids}
        refuse: Callable[[BulkAction], Failure | None] = lambda action: failure if action.id in bad else None  # noqa: E731
        self.sink.refuse = refuse

    @property
    def committable(self) -> int:
        (partition,) = self.partitions.all()
        return partition.ledger.committable()


@pytest.fixture
def stream(queue: EventTable, sink: MemorySink) -> Stream:
    return Stream(queue, sink)


def test_a_failed_record_is_a_failed_row_with_all_that_a_person_needs(
    queue: EventTable, records: PostgresRecords
) -> None:
    payload = b'{"price": 1.10, "n": 12345678901234567890}'
    records.store([a_row(a_record(7, "a", version=3, value=payload, routing="r", traceparent="00-t"), FAILED)])
    (row,) = queue.rows()
    assert (row.id, row.idempotency_key) == (uuid_of(7), f"kafka:{TOPIC}:0:7@g")
    assert (row.status, row.dead_reason, row.error_reason) == ("failed", "non_retryable", "es_rejected_document")
    assert (row.entity_type, row.entity_id, row.op, row.event_version) == ("article", "a", "upsert", 3)
    assert (row.routing, row.traceparent, row.attempts) == ("r", "00-t", 1)
    assert row.error_detail == {"why": "mapping"}
    assert row.created_at.timestamp() == pytest.approx(1_800_000_000 - 1)
    assert queue.value("select payload::text from search_outbox_events") == payload.decode()
    assert queue.value("select count(*) from search_outbox_attempts where event_id = %s", row.id) == 1


def test_storing_again_changes_nothing(queue: EventTable, records: PostgresRecords) -> None:
    rows = [a_row(a_record(n, str(n)), FAILED) for n in range(30)]
    for _ in range(3):
        records.store(rows)
    records.store([a_row(a_record(3, "3"), RetryLater(1.0, BUSY)), a_row(a_record(30, "30"), FAILED)])
    assert queue.counts() == {"failed": 31}
    assert queue.value("select count(*) from search_outbox_attempts") == 31


def test_the_same_event_at_another_offset_is_the_same_row(queue: EventTable, records: PostgresRecords) -> None:
    """A connector that was restarted sends it again."""
    id = str(uuid_of(1))
    records.store([a_row(a_record(1, "a", id=id, version=2), FAILED)])
    records.store([a_row(a_record(9, "a", id=id, version=2), FAILED)])
    assert len(queue.rows()) == 1


def test_another_event_under_a_known_id_is_not_lost(queue: EventTable, records: PostgresRecords) -> None:
    """A producer that takes the entity's uuid for the event's."""
    id = str(uuid_of(1))
    for _ in range(2):
        records.store([a_row(a_record(1, "a", id=id, version=2), FAILED)])
        records.store([a_row(a_record(9, "a", DELETE, id=id, version=3), DONE)])
    assert [(row.op, row.status, row.event_version) for row in queue.rows()] == [
        ("upsert", "failed", 2),
        ("delete", "done", 3),
    ]
    (late,) = events_of(a_record(10, "a", version=2))
    assert records.newer_deletes([late])[late.id].event_version == 3


def test_a_delete_that_failed_first_and_is_done_after_a_rewind_is_known_to_the_guard(
    queue: EventTable, records: PostgresRecords
) -> None:
    delete = a_record(1, "a", DELETE, version=6)
    records.store([a_row(delete, FAILED)])
    for _ in range(2):
        records.store([a_row(delete, DONE)])
    assert sorted(row.status for row in queue.rows()) == ["done", "failed"]
    (late,) = events_of(a_record(10, "a", version=5))
    assert records.newer_deletes([late])[late.id].event_version == 6


def test_a_table_that_keeps_its_columns_short_is_refused_with_the_statement_that_helps(
    queue: EventTable, records: PostgresRecords
) -> None:
    queue.connection.execute("alter table search_outbox_events alter column op type varchar(20)")
    with pytest.raises(ColumnsTooShort) as refused:
        records.check()
    queue.connection.execute(refused.value.detail.strip("`").encode())
    records.check()


def test_another_event_at_the_same_offset_is_not_lost(queue: EventTable, records: PostgresRecords) -> None:
    """The topic was made anew: its offsets begin at 0 again."""
    for _ in range(2):
        records.store([a_row(a_record(1, "a", id=str(uuid_of(1))), FAILED)])
        records.store([a_row(a_record(1, "b", id=str(uuid_of(2))), FAILED)])
    assert [row.entity_id for row in queue.rows()] == ["a", "b"]


def test_a_batch_that_ended_in_an_error_is_claimed_as_suspects(queue: EventTable, records: PostgresRecords) -> None:
    records.store([a_row(a_record(0, "a"), None)._replace(error="ValueError")])
    assert queue.claim().events == []
    (event,) = queue.claim(suspects=1).events
    assert event.abandoned_count == 1


BAD_VALUES = {
    "no JSON": b"{oops",
    "not UTF-8": b'{"a": "\xff"}',
    "nested without end": b"[" * 20_000,
    "an encoded zero": b'{"a": "\\u0000"}',
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_value_that_the_table_cannot_hold_is_stored_without_it_and_no_replay_takes_it_for_an_event(
    queue: EventTable, records: PostgresRecords, name: str
) -> None:
    rows = [a_row(a_record(n, str(n), value=BAD_VALUES[name] if n == 1 else b"{}"), FAILED) for n in range(3)]
    records.store(rows)
    records.store(rows)
    found = {row.entity_id: row for row in queue.rows()}
    assert len(found) == 3
    assert (found["0"].op, found["2"].op) == ("upsert", "upsert")
    if name != "an encoded zero":
        assert found["1"].op.startswith(UNREADABLE)
        assert (found["1"].payload, found["1"].error_reason) == (None, "es_rejected_document")


def test_an_id_that_its_column_cannot_hold_is_stored_all_the_same(queue: EventTable) -> None:
    queue.connection.execute("drop index search_outbox_events_failed_id_idx, search_outbox_events_delete_hash_idx")
    queue.connection.execute("alter table search_outbox_events alter column entity_id type uuid using entity_id::uuid")
    records = PostgresRecords(queue.pool(), queue.store(), owner="w1", group="g")
    good = str(uuid_of(77))
    records.store([a_row(a_record(0, "no uuid"), FAILED), a_row(a_record(1, good, DELETE, version=9), DONE)])
    assert queue.counts() == {"failed": 1, "done": 1}
    late = [read(a_record(n, id, version=2), 0.0).event for n, id in ((5, good.upper()), (6, good))]
    assert [delete.event_version for delete in records.newer_deletes(late).values()] == [9, 9]
    mixed = [*late[1:], read(a_record(7, "no uuid", version=2), 0.0).event]
    assert list(records.newer_deletes(mixed)) == [late[1].id]


def events_of(*records: MadeRecord) -> list[Event]:
    return [read(record, 0.0).event for record in records]


def test_newer_deletes_are_those_of_the_same_document(queue: EventTable, records: PostgresRecords) -> None:
    records.store([a_row(a_record(0, "a", DELETE, version=10), DONE), a_row(a_record(1, "b", DELETE, version=5), DONE)])
    queue.produce("c", "delete", event_version=99)  # waits: nobody has applied it
    older, newer, other, elsewhere, waiting = events_of(
        a_record(10, "a", version=9),
        a_record(11, "a", version=11),
        a_record(12, "b", version=5),
        a_record(13, "a", version=3, routing="r"),
        a_record(14, "c", version=1),
    )
    found = records.newer_deletes([older, newer, other, elsewhere, waiting])
    assert {id: delete.event_version for id, delete in found.items()} == {older.id: 10}


def test_a_delete_is_there_before_its_offset_may_pass_and_guards_what_is_replayed(
    queue: EventTable, stream: Stream
) -> None:
    """Delete, Elasticsearch restarted, then a replay of an older stored upsert, then the offset at the beginning."""
    stream.refuse("a")
    stream.put("a", version=1)
    stream.run()
    (failed,) = queue.rows()
    stream.refuse()
    stream.put("a", version=2)
    stream.put("a", "delete", version=3)
    stream.run()
    assert (stream.committable, stream.sink.documents) == (3, {})
    stream.sink.forget_deletes()
    replay(queue, failed.id)
    stream.table().run()
    assert stream.sink.documents == {}
    assert queue.row(failed.id).status == "done"
    stream.sink.forget_deletes()
    stream.now += 61
    stream.again(0)
    stream.run()
    assert (stream.sink.documents, stream.committable) == ({}, 3)
    assert sorted(row.op for row in queue.rows()) == ["delete", "upsert"]


def replay(queue: EventTable, id: UUID) -> None:
    queue.connection.execute(
        "update search_outbox_events set status = 'pending', failed_at = null, attempts = 0,"
        " replay_count = replay_count + 1 where id = %s",
        [id],
    )


def test_records_read_again_after_a_death_store_each_exception_once(queue: EventTable, stream: Stream) -> None:
    stream.refuse(*map(str, range(0, 60, 2)))
    for n in range(60):
        stream.put(str(n))
    stream.run()
    stream.again(0)
    stream.run()
    assert queue.counts() == {"failed": 30}
    assert len(stream.sink.documents) == 30


def test_a_stored_retry_is_done_by_a_table_lane(queue: EventTable, stream: Stream) -> None:
    stream.refuse("a", failure=BUSY)
    stream.put("a")
    stream.run()
    stream.refuse()
    queue.make_due()
    stream.table().run()
    assert queue.counts() == {"done": 1}
    assert list(stream.sink.documents) == [("articles", "article:a")]


def test_an_offset_waits_for_its_row_while_the_database_is_down(
    queue: EventTable, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: object) -> None:
        raise DatabaseDown("away")

    stream.refuse("bad")
    for id in ("a", "bad", "c"):
        stream.put(id, age_seconds=0.0)
    (partition,) = stream.partitions.all()
    partition.again_below = 0
    monkeypatch.setattr(stream.records, "store", away)
    with pytest.raises(NotStored):
        stream.run()
    assert (stream.committable, queue.rows()) == (1, [])
    monkeypatch.undo()
    stream.clock.passes(60)
    stream.run()
    assert (stream.committable, queue.counts()) == (3, {"failed": 1})


LATER = RetryLater(60.0, BUSY)
ENDED = None  # the work on it ended in an unexpected error: a suspect
NEW: dict[str, Settlement | None] = {
    "a retry": LATER,
    "a failure": FAILED,
    "a brake": Released("braked", HOLD_SECONDS, REFUSED),
    "a suspect": ENDED,
}
OPENED = {"a retry": "pending", "a failure": "failed", "a brake": "pending", "a suspect": "pending"}
HAVE = {
    "pending": "status = 'pending', processed_at = null, next_retry_at = now() + interval '1 hour'",
    "processing": "status = 'processing', processed_at = null, lease_token = gen_random_uuid()",
    "failed": "status = 'failed', processed_at = null, failed_at = now()",
    "discarded": "status = 'discarded'",
    "done": "status = 'done'",
}


@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("have", HAVE)
def test_a_record_passes_only_with_a_row_that_is_open_or_that_a_person_has(
    queue: EventTable, records: PostgresRecords, have: str, new: str
) -> None:
    """Its index was lost and the group's offsets set back: what the row was before says nothing of the index."""
    record = a_record(1, "a", version=6)
    records.store([a_row(record, FAILED)])
    queue.connection.execute("update search_outbox_events set status = 'done', processed_at = now(), failed_at = null")
    queue.connection.execute(f"update search_outbox_events set {HAVE[have]}".encode())
    for _ in range(2):
        records.store([a_row(record, NEW[new])])
    found = [row.status for row in queue.rows()]
    expected = {"done": [OPENED[new]], "processing": ["processing", OPENED[new]]}
    assert found == expected.get(have, [have])
    if have == "done":
        (row,) = queue.rows()
        assert (row.processed_at, row.failed_at is not None) == (None, OPENED[new] == "failed")
        assert queue.value("select payload::text from search_outbox_events") == '{"n": 1}'


def test_an_index_that_is_lost_is_filled_again_from_the_topic_although_it_refuses_some(
    queue: EventTable, stream: Stream
) -> None:
    """Thirty of them were refused the first time too, and their rows are done."""
    for n in range(100):
        stream.put(str(n), "delete" if n % 10 == 9 else "upsert", version=n + 1)
    stream.refuse(*map(str, range(30)), failure=BUSY)
    stream.run()
    stream.refuse()
    queue.make_due()
    while stream.table().run() is not None:
        pass
    assert set(queue.counts()) == {"done"}
    stream.sink.documents.clear()
    stream.refuse(*map(str, range(0, 100, 3)), failure=BUSY)
    stream.again(0)
    stream.run()
    assert stream.committable == 100
    stream.refuse()
    queue.make_due()
    while stream.table().run() is not None:
        pass
    assert set(queue.counts()) == {"done"}
    assert {id for _, id in stream.sink.documents} == {f"article:{n}" for n in range(100) if n % 10 != 9}


@pytest.mark.parametrize("group", ["g", "g:h", "h@g"])
@pytest.mark.parametrize("settlement", [FAILED, LATER, ENDED])
def test_a_worker_of_another_group_refuses_to_start_while_exceptions_of_this_one_wait(
    queue: EventTable, group: str, settlement: Settlement | None
) -> None:
    """It would write them to its own index: 152 of 3,000 documents were missing in the other, and nobody said so."""
    ours, theirs = (PostgresRecords(queue.pool(), queue.store(), owner="w", group=name) for name in (group, "g2"))
    ours.store([a_row(a_record(1, "a"), settlement), a_row(a_record(2, "a", "delete"), DONE)])
    ours.store([a_row(a_record(1, "b", id=str(uuid_of(77))), settlement)])  # its key was taken
    ours.check()
    with pytest.raises(ForeignExceptions, match=f"kafka:{TOPIC}:0:1@{group}"):
        theirs.check()
    queue.connection.execute("update search_outbox_events set status = 'discarded' where status <> 'done'")
    theirs.check()
