"""One suite for the queue in memory and the one in PostgreSQL: claim, settle, renew, release, fence and reclaim."""

from collections.abc import Iterator
from typing import Any, Protocol
from uuid import UUID, uuid4

import pytest

from outbox.policy.outcome import Code, DeadReason, Failure, Reason
from outbox.policy.settle import DONE, Failed, Released, RetryLater, Settlement
from outbox.ports import Claimed, ClaimOrder, EventStore, NewerDelete
from tests.fakes import MemoryEvents, MemoryQueue
from tests.fixtures.queue import EventTable

BUSY = Failure(Reason.ES_429, "busy", fingerprint="f1")
BAD = Failure(Reason.ES_REJECTED_DOCUMENT, "bad", Code.PAYLOAD_INVALID, "f2", {"why": "mapping"})


class Table(Protocol):
    """What the suite needs beside the store: producing, reading, and time that passes."""

    store: EventStore
    other: EventStore

    def produce(self, entity_id: str = "1", op: str = "upsert", **values: Any) -> UUID: ...
    def look(self, id: UUID) -> Any: ...
    def waits(self, id: UUID) -> bool: ...
    def make_due(self) -> None: ...
    def take_back(self, token: UUID, *, dead: bool) -> int: ...
    def steal(self, id: UUID) -> None:
        """One row of a batch is someone else's now."""
        ...


class MemoryTable:
    def __init__(self) -> None:
        self.queue = MemoryQueue()
        self.store: EventStore = MemoryEvents(self.queue)
        self.other: EventStore = MemoryEvents(self.queue)
        self.produce = self.queue.produce
        self.take_back = self.queue.take_back

    def look(self, id: UUID) -> Any:
        return self.queue.rows[id]

    def waits(self, id: UUID) -> bool:
        return bool(self.queue.rows[id].due_in)

    def steal(self, id: UUID) -> None:
        self.queue.rows[id].token = uuid4()

    def make_due(self) -> None:
        for row in self.queue.rows.values():
            row.due_in = row.due_in and 0.0


class PostgresTable:
    def __init__(self, queue: EventTable) -> None:
        self.queue = queue
        self.store: EventStore = queue.store("w1")
        self.other: EventStore = queue.store("w2")
        self.make_due = queue.make_due
        self.look = queue.row

    def produce(self, entity_id: str = "1", op: str = "upsert", **values: Any) -> UUID:
        if "payload" in values and values["payload"] is not None:
            values["payload"] = values["payload"].decode()
        return self.queue.produce(entity_id, op, **values)

    def waits(self, id: UUID) -> bool:
        query = "select next_retry_at > clock_timestamp() from search_outbox_events where id = %s"
        return bool(self.queue.value(query, id))

    def steal(self, id: UUID) -> None:
        self.queue.connection.execute(
            "update search_outbox_events set lease_token = gen_random_uuid() where id = %s", [id]
        )

    def take_back(self, token: UUID, *, dead: bool) -> int:
        self.queue.expire(token)
        return self.queue.reclaims().step(lambda _: dead).rows


@pytest.fixture(params=["memory", "postgres"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    if request.param == "memory":
        yield MemoryTable()
    else:
        yield PostgresTable(request.getfixturevalue("queue"))


def claim(store: EventStore, limit: int = 100, **values: Any) -> Claimed:
    return store.claim(ClaimOrder(uuid4(), limit, limit, **values))


def settle(store: EventStore, claimed: Claimed, verdict: Settlement) -> list[UUID]:
    """The rows that were lost."""
    return list(store.settle(claimed.token, [(event.id, verdict) for event in claimed.events]).lost)


def test_a_claim_takes_the_oldest_pending_rows_once_and_counts_the_attempt(table: Table) -> None:
    ids = [table.produce(str(n)) for n in range(5)]
    first, second = claim(table.store, 3), claim(table.other, 3)
    assert [event.id for event in first.events] == ids[:3]
    assert [event.id for event in second.events] == ids[3:]
    assert {event.attempts for event in (*first.events, *second.events)} == {1}
    assert not claim(table.store).events


def test_a_retry_is_claimed_when_it_is_due_and_not_before(table: Table) -> None:
    table.produce()
    settle(table.store, claim(table.store), RetryLater(3600.0, BUSY))
    assert not claim(table.store).events
    table.make_due()
    (event,) = claim(table.store).events
    assert (event.attempts, event.retried) == (2, True)


def test_a_former_owner_changes_nothing_and_learns_what_it_lost(table: Table) -> None:
    id = table.produce()
    late = claim(table.store)
    assert table.take_back(late.token, dead=False) == 1
    mine = claim(table.other)
    assert settle(table.store, late, Failed(BAD, DeadReason.NON_RETRYABLE)) == [id]
    assert table.store.release(late.token).rows == 0
    assert not table.store.renew(late.token)
    assert table.look(id).status == "processing"
    assert settle(table.other, mine, DONE) == []
    assert table.look(id).status == "done"
    assert settle(table.store, late, RetryLater(1.0, BUSY)) == [id]
    assert table.look(id).status == "done"


@pytest.mark.parametrize(
    "verdict",
    [DONE, RetryLater(3600.0, BUSY), Failed(BAD, DeadReason.NON_RETRYABLE), Released("braked", 60.0, BAD)],
    ids=["done", "retry later", "failed", "held"],
)
def test_a_settle_that_is_repeated_because_its_reply_was_lost_has_lost_nothing(
    table: Table, verdict: Settlement
) -> None:
    table.produce()
    claimed = claim(table.store)
    assert settle(table.store, claimed, verdict) == []
    assert settle(table.store, claimed, verdict) == []


def test_a_release_gives_all_back_with_its_attempt_and_only_once(table: Table) -> None:
    ids = [table.produce(str(n)) for n in range(3)]
    claimed = claim(table.store)
    assert table.store.release(claimed.token).rows == 3
    assert table.store.release(claimed.token).rows == 0
    assert {(table.look(id).status, table.look(id).attempts) for id in ids} == {("pending", 0)}


def test_a_row_whose_worker_died_comes_back_as_a_suspect_and_keeps_its_attempt(table: Table) -> None:
    id = table.produce()
    claimed = claim(table.store)
    table.take_back(claimed.token, dead=True)
    assert not claim(table.store).events
    (event,) = claim(table.store, suspects=1).events
    assert (event.id, event.attempts, event.abandoned_count, event.retried) == (id, 2, 1, True)


def test_suspects_are_claimed_by_how_often_their_workers_died(table: Table) -> None:
    for n in range(6):
        table.produce(str(n), abandoned_count=n)
    found = {level: [e.abandoned_count for e in claim(table.store, suspects=level).events] for level in (1, 2, 3)}
    assert found == {1: [1], 2: [2], 3: [3, 4, 5]}


def test_the_sixth_death_of_its_worker_fails_a_row(table: Table) -> None:
    id = table.produce()
    for death in range(6):
        claimed = claim(table.store, suspects=min(death, 3)) if death else claim(table.store)
        assert len(claimed.events) == 1, death
        table.take_back(claimed.token, dead=True)
    row = table.look(id)
    assert (row.status, row.error_reason, row.dead_reason) == ("failed", "crash_suspect", "crash_suspect")


def test_newer_deletes_are_found_by_version_and_then_by_seq(table: Table) -> None:
    for entity, version, op in [("a", 5, "upsert"), ("b", 5, "upsert"), ("c", 5, "upsert"), ("d", 5, "upsert")]:
        table.produce(entity, op, event_version=version)
    held = claim(table.store)
    for entity, version in [("a", 6), ("a", 9), ("b", 4), ("c", 5)]:
        table.produce(entity, "delete", event_version=version)
    table.produce("d", "delete", event_version=6, routing="elsewhere")
    settle(table.other, claim(table.other), DONE)
    ids = {event.entity_id: event.id for event in held.events}
    found = table.store.newer_deletes(held.token, list(ids.values()))
    assert found == {ids["a"]: NewerDelete(9, None), ids["c"]: NewerDelete(5, None)}


def test_a_delete_counts_from_its_claim_on(table: Table) -> None:
    """From then on it may have been applied; before that it will be, and is newer."""
    table.produce("a", event_version=1)
    held = claim(table.store)
    table.produce("a", "delete", event_version=2)
    ids = [held.events[0].id]
    assert table.store.newer_deletes(held.token, ids) == {}
    claim(table.other)
    assert table.store.newer_deletes(held.token, ids) == {ids[0]: NewerDelete(2, None)}
