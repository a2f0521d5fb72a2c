"""One row must never stop another: any value in any column, verdicts that cannot be written, errors, locks."""

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from outbox import fast_path
from outbox.daemon import brake
from outbox.daemon.lease import BUSY_SECONDS
from outbox.errors import LockHeld
from outbox.facts import BatchClaimed, DatabaseLost, Reclaimed, Warned
from outbox.ops.discard import DiscardDesk
from outbox.policy.inputs import EventFilter
from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import Judge
from outbox.ports import BulkAction, GivenBack, Reclaim, WriteReport
from outbox.store.acts import PostgresDiscards
from outbox.store.backlog import PostgresOverview
from outbox.store.browsing import PostgresBrowsing
from outbox.store.events import PostgresEvents
from outbox.store.failures import PostgresFailures
from tests.fixtures.extremes import COLUMNS, REFUSED_AT_INSERT, extremes
from tests.fixtures.failures import ALICE, replay_desk
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable, alive, dead, order
from tests.fixtures.sinks import MemorySink, elastic_sink

NEIGHBOURS = 60


def poison(queue: EventTable) -> dict[UUID, str]:
    """One row for each extreme value of each column; what PostgreSQL refuses is the producer's to see, at once."""
    made: dict[UUID, str] = {}
    for told, row in extremes(queue.connection.execute(COLUMNS).fetchall()):
        entity_id = row.pop("entity_id", f"p{len(made)}")
        with suppress(*REFUSED_AT_INSERT):
            made[queue.produce(entity_id, **row)] = told
    return made


def run_out(worker: InProcess, most: int = 400) -> None:
    """Lane steps until nothing is claimed any more; the clock moves on, so that suspects are searched for."""
    idle = 0
    for _ in range(most):
        before = len(worker.facts)
        worker.lane.step()
        worker.clock.passes(1.1)
        idle = idle + 1 if not any(isinstance(fact, BatchClaimed) for fact in worker.facts[before:]) else 0
        if idle > 3:
            return
    raise AssertionError("there was always something to claim")


def statuses(queue: EventTable, entity_type: str) -> dict[str, int]:
    rows = queue.connection.execute(
        "select status, count(*) from search_outbox_events where entity_type = %s group by 1", [entity_type]
    ).fetchall()
    return dict(rows)


def people_look(queue: EventTable) -> None:
    """Lists and counts, as pages and the sampler ask for them."""
    pool = queue.pool()
    last: dict[str, Any] = {"before_at": datetime.max.replace(tzinfo=UTC), "before_id": UUID(int=2**128 - 1)}
    browsing = PostgresBrowsing(pool)
    statuses = ["pending", "processing"]
    assert browsing.page("list_open", EventFilter(), limit=1_000, statuses=statuses, before_seq=2**63 - 1)
    assert browsing.page("list_failed", EventFilter(), limit=1_000, **last)
    assert browsing.page("list_done", EventFilter(), limit=1_000, **last)
    assert PostgresFailures(pool).groups(EventFilter(), 100)
    assert PostgresOverview(pool).open_by_type()


def ids(queue: EventTable, where: str) -> list[UUID]:
    """Without their times, some of which Python does not know."""
    query = f"select id from search_outbox_events where {where}"
    return [id for (id,) in queue.connection.execute(query.encode())]


def test_any_value_in_any_column_leaves_its_neighbours_alone(
    queue: EventTable, elastic_url: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through claim, bulk and settle; through death and reclaim, sweep, replay and discard."""
    queue.produce_many(NEIGHBOURS // 2, "first")
    made = poison(queue)
    queue.produce_many(NEIGHBOURS // 2, "second")
    with elastic_sink(elastic_url) as sink:
        worker = InProcess(Parts(queue.store(), sink, index_of=lambda _: index))
        monkeypatch.setattr(brake, "MOST_FAILURES", len(made))
        people_look(queue)
        for which in ({}, {"suspects": 3}):
            held = queue.claim(queue.store("dies"), limit=500, **which)
            queue.expire(held.token)
            assert queue.reclaims().step(dead).rows == len(held.events) > 0
        queue.reclaims().sweep()
        run_out(worker)
        people_look(queue)
    assert (statuses(queue, "first"), statuses(queue, "second")) == ({"done": 30}, {"done": 30})
    assert [fact.message for fact in worker.of(Warned)] == []
    later = "next_retry_at > now() + interval '1 hour'"  # as its producer wished
    assert [made[id] for id in ids(queue, f"status in ('pending', 'processing') and ({later}) is not true")] == []
    failed = ids(queue, "status = 'failed'")
    assert len(replay_desk(queue.pool()).replay_many(failed, ALICE, "again").replayed) == len(failed)
    queue.connection.execute("update search_outbox_events set status = 'failed' where status = 'pending'")
    n = queue.counts()["failed"]
    discards = PostgresDiscards(queue.pool())
    assert DiscardDesk(discards.discard, discards.flush).flush(EventFilter(), n, ALICE, "enough", "bob").count == n


class Locked:
    """Someone idle in a transaction, who has locked what the query finds."""

    def __init__(self, queue: EventTable, query: str, *values: Any) -> None:
        self.connection = queue.stack.enter_context(psycopg.connect(queue.url))
        self.connection.execute(query.encode(), values)

    def leave(self) -> None:
        self.connection.rollback()


ROW = "select from search_outbox_events where id = %s for update"
LEASE = "select from search_outbox_leases where token = %s for update"


def test_a_locked_row_holds_up_neither_its_batch_nor_the_heartbeat_nor_a_shutdown(queue: EventTable) -> None:
    queue.produce_many(20)
    worker = InProcess(Parts(queue.store(), MemorySink()))
    claimed, other = worker.claim(10), worker.claim(10)
    locked = claimed.events[3].id
    someone = Locked(queue, ROW, locked)
    started = time.monotonic()
    worker.projector.project(claimed, 0)
    assert queue.counts() == {"done": 9, "processing": 11}
    assert worker.last.done == 9
    assert [fact.event for fact in worker.of(Warned)] == ["settle.locked"]
    assert queue.value("select ids from search_outbox_leases where token = %s", claimed.token) == [locked]
    counts = queue.value("select counts from search_outbox_leases where token = %s", claimed.token)
    assert list(counts.values()) == [1], "the limit of its type counts what is left"
    assert worker.store.renew(other.token)
    assert worker.store.renew(claimed.token)
    assert worker.store.release(claimed.token) == GivenBack(0, 1)
    assert time.monotonic() - started < BUSY_SECONDS + 5
    someone.leave()
    queue.expire(claimed.token)
    assert queue.reclaims().step(alive).rows == 1
    assert queue.row(locked).abandoned_count == 0


def test_a_locked_lease_is_said_and_waited_for_no_longer_than_a_moment(queue: EventTable) -> None:
    queue.produce_many(2)
    worker = InProcess(Parts(queue.store(), MemorySink()))
    claimed = worker.claim()
    someone = Locked(queue, LEASE, claimed.token)
    for wait in (worker.store.renew, worker.store.release):
        with pytest.raises(LockHeld):
            wait(claimed.token)
    with worker.leases.holding(claimed):
        worker.clock.passes(30)
        worker.leases.beat()
    assert [fact.event for fact in worker.of(Warned)] == ["heartbeat.locked"]
    assert worker.of(DatabaseLost) == []
    someone.leave()
    worker.projector.project(claimed, 0)
    assert queue.counts() == {"done": 2}


def refuse(queue: EventTable, entity_id: str, *statuses: str) -> None:
    """A trigger of the user's that will not have one entity's event in these states."""
    query = """
        create function refuse() returns trigger language plpgsql as $$
        begin raise exception 'not this one'; end $$;
        create trigger refuse before update on search_outbox_events for each row
            when (new.entity_id = {} and new.status in ({})) execute function refuse()"""
    states = sql.SQL(", ").join(map(sql.Literal, statuses))
    queue.connection.execute(sql.SQL(query).format(sql.Literal(entity_id), states))


def test_a_verdict_that_cannot_be_written_is_isolated_and_fails_in_the_end(queue: EventTable) -> None:
    queue.produce_many(100)
    refuse(queue, "57", "done")
    worker = InProcess(Parts(queue.store(), MemorySink()))
    worker.lane.step()
    assert queue.counts() == {"done": 99, "pending": 1}, "its neighbours are done with the very same batch"
    run_out(worker)
    (row,) = queue.rows("entity_id = '57'")
    assert (row.status, row.abandoned_count, row.dead_reason) == ("failed", 6, "crash_suspect")
    assert "not this one" in row.error
    assert sum(fact.failed for fact in worker.of(Reclaimed)) == 1
    assert queue.leases() == 0


def test_a_database_that_refuses_every_verdict_is_no_rows_fault(queue: EventTable) -> None:
    queue.produce_many(60)
    queue.connection.execute(
        "create function refuse_all() returns trigger language plpgsql as $$ begin raise exception 'none'; end $$;"
        "create trigger refuse_all before update on search_outbox_events for each row"
        " when (new.status in ('done', 'failed')) execute function refuse_all()"
    )
    worker = InProcess(Parts(queue.store(), MemorySink()))
    for _ in range(3):
        worker.lane.step()
        worker.clock.passes(60)
    assert queue.counts() == {"pending": 60}
    assert {(row.attempts, row.abandoned_count) for row in queue.rows()} == {(0, 0)}


class Falls(MemorySink):
    """Our own bug: it meets one document, and raises."""

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        if any(action.id.endswith(":57") for action in actions):
            raise ZeroDivisionError("a bug")
        return super().write(actions, deadline_seconds)


def test_an_error_that_nobody_foresaw_gives_the_batch_back_at_once_and_finds_the_row_at_fault(
    queue: EventTable,
) -> None:
    queue.produce_many(100)
    worker = InProcess(Parts(queue.store(), Falls()))
    worker.lane.step()
    assert queue.counts() == {"pending": 100}
    assert queue.leases() == 0
    run_out(worker)
    (row,) = queue.rows("status <> 'done'")
    assert (row.entity_id, row.status, row.dead_reason, row.abandoned_count) == ("57", "failed", "crash_suspect", 6)
    assert "ZeroDivisionError" in row.error


STAGES = {
    "prepare": (fast_path, "sort_out"),
    "guard": (PostgresEvents, "newer_deletes"),
    "write": (MemorySink, "write"),
    "judge": (Judge, "failed"),
    "settle": (PostgresEvents, "settle"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_an_unexpected_error_of_ours_releases_its_batch_at_once_wherever_it_happens(
    queue: EventTable, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing here ends a lease or reclaims: what is claimed again was given back. Its events are suspects."""

    def bug(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    queue.produce_many(3, created_at=datetime.now(UTC) - timedelta(hours=1))  # late, so that newer deletes are read
    sink = MemorySink(refuse=lambda action: Failure(Reason.ES_429, "later") if action.id.endswith(":2") else None)
    worker = InProcess(Parts(queue.store(), sink))
    with monkeypatch.context() as patch:
        patch.setattr(*STAGES[stage], bug)
        worker.lane.step()
    assert {(row.status, row.abandoned_count, row.lease_until) for row in queue.rows()} == {("pending", 1, None)}
    assert {(row.error_reason, row.next_retry_at) for row in queue.rows()} == {("crash_suspect", None)}
    assert queue.leases() == 0
    assert [(fact.count, fact.abandoned, fact.failed) for fact in worker.of(Reclaimed)] == [(3, 3, 0)]
    worker.clock.passes(1.1)  # suspects are asked for once per second
    worker.lane.step()
    assert [fact.suspects for fact in worker.of(BatchClaimed)] == [False, True]
    assert sorted((row.entity_id, row.status) for row in queue.rows()) == [
        ("1", "done"),
        ("2", "pending"),
        ("3", "done"),
    ]


def test_a_row_that_cannot_be_taken_back_holds_up_no_other(queue: EventTable) -> None:
    queue.produce_many(10)
    held, other = queue.claim(limit=5), queue.claim(limit=5)
    refuse(queue, held.events[2].entity_id, "pending")
    queue.expire()
    reclaims = queue.reclaims()
    assert reclaims.step(alive) == Reclaim(9, 0, 0, refused=1)
    assert reclaims.step(alive) == Reclaim(0, 0, 0)
    assert queue.counts() == {"pending": 9, "processing": 1}
    assert queue.value("select ids from search_outbox_leases") == [held.events[2].id]
    assert other.events


def test_a_quota_that_someone_has_locked_stops_no_other_type(queue: EventTable) -> None:
    queue.produce_many(2, "limited")
    store = queue.store()
    store.put_quota("limited", 5, None)
    someone = Locked(queue, "select from search_outbox_quotas for update")
    assert store.claim_within_quota(order(entity_type="limited")).events == ()
    someone.leave()
    assert len(store.claim_within_quota(order(entity_type="limited")).events) == 2
