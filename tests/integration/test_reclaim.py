"""Taking rows back on real PostgreSQL: leases that ran out, strays without a lease, and who counts as crashed."""

import os
import socket
import subprocess
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox.daemon.reclaimer import Reclaimer
from outbox.facts import Fact, Reclaimed
from outbox.policy.settle import DONE
from outbox.ports import Claimed, Sweep
from outbox.store.workers import RECLAIM_KEY
from tests.fixtures.events import Time
from tests.fixtures.queue import EventTable, alive, dead

HERE = socket.gethostname()


class Watch:
    """A reclaimer on this queue; its own clock, so that it can have been connected for long."""

    def __init__(self, queue: EventTable, heartbeat_seconds: float = 1.0, **options: Any) -> None:
        self.facts: list[Fact] = []
        self.clock = Time()
        reclaims = queue.reclaims(**options)
        self.reclaimer = Reclaimer(reclaims.step, reclaims.sweep, self.facts.append, self.clock, 5.0, heartbeat_seconds)
        self.reclaimer._next_sweep = 10.0**9
        self.reclaimer._connected_since = self.clock.now - 100

    def reclaimed(self) -> tuple[int, int, int]:
        self.facts.clear()
        self.reclaimer.pass_once()
        found = [fact for fact in self.facts if isinstance(fact, Reclaimed)]
        return (found[0].count, found[0].abandoned, found[0].failed) if found else (0, 0, 0)


def dead_pid() -> int:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    return child.pid


def a_batch(queue: EventTable, rows: int = 3, worker: str = "w1", start: UUID | None = None) -> Claimed:
    for _ in range(rows):
        queue.produce()
    return queue.claim(queue.store(worker, start_id=start))


def enrol(queue: EventTable, worker: str = "w1", host: str = "far", pid: int = 1) -> UUID:
    start = uuid4()
    about = {"host": host, "pid": pid, "version": "1", "heartbeat_seconds": 1.0, "entity_types": []}
    assert queue.worker(worker, start).register(about, None)
    return start


def silence(queue: EventTable, worker: str = "w1") -> None:
    queue.connection.execute(
        "update search_outbox_workers set heartbeat_at = now() - interval '10 seconds' where worker_id = %s", [worker]
    )


def test_rows_of_a_lease_that_ran_out_come_back_pending_with_their_attempt_spent(queue: EventTable) -> None:
    claimed = a_batch(queue)
    queue.expire(claimed.token)
    assert Watch(queue).reclaimed()[0] == 3
    rows = queue.rows()
    assert {(row.status, row.attempts, row.owner, row.lease_until) for row in rows} == {("pending", 1, None, None)}
    assert {row.lease_token for row in rows} == {claimed.token}, "the last token stays"
    assert queue.leases() == 0


def test_neither_a_claim_nor_a_reclaim_judges_attempts(queue: EventTable) -> None:
    """A row beyond its limit is claimed, and comes back: only a failure that is settled compares the two."""
    id = queue.produce(attempts=50, max_attempts=3)
    (event,) = queue.claim().events
    assert (event.id, event.attempts) == (id, 51)
    queue.expire()
    queue.reclaims().step(alive)
    assert (queue.row(id).status, queue.row(id).attempts, queue.row(id).dead_reason) == ("pending", 51, None)
    (event,) = queue.claim().events
    assert (event.id, event.attempts) == (id, 52)


def test_a_lease_that_is_renewed_for_ever_ends_at_max_processing(queue: EventTable) -> None:
    claimed = a_batch(queue)
    queue.connection.execute("update search_outbox_leases set started_at = now() - interval '61 seconds'")
    assert queue.store().renew(claimed.token)
    assert Watch(queue, max_processing_seconds=60.0).reclaimed()[0] == 3


@pytest.mark.parametrize(
    ("evidence", "abandoned"),
    [
        ("beats", 0),
        ("silent", 1),
        ("replaced", 1),
        ("pid dead here", 1),
        ("pid alive here", 0),
        ("left", 0),
        ("unknown", 1),
    ],
)
def test_only_the_rows_of_a_worker_that_was_killed_count_as_abandoned(
    queue: EventTable, evidence: str, abandoned: int
) -> None:
    where = {"pid dead here": (HERE, dead_pid()), "pid alive here": (HERE, os.getpid())}.get(evidence, ("far", 1))
    start = uuid4() if evidence == "unknown" else enrol(queue, "w1", *where)
    a_batch(queue, 1, "w1", start)
    queue.expire()
    if evidence == "silent":
        silence(queue)
    elif evidence == "left":
        queue.worker("w1", start).leave()
        silence(queue)
    elif evidence == "replaced":
        silence(queue)
        enrol(queue, "w1")
    assert Watch(queue).reclaimed() == (1, abandoned, 0)
    assert queue.rows()[0].abandoned_count == abandoned


def test_a_large_lease_is_taken_back_in_bounded_steps(queue: EventTable) -> None:
    queue.produce_many(1_200)
    queue.claim(limit=1_200)
    queue.expire()
    reclaims = queue.reclaims(rows_a_step=500)
    assert [reclaims.step(dead).rows for _ in range(4)] == [500, 500, 200, 0]
    assert queue.leases() == 0
    assert queue.counts() == {"pending": 1_200}


def test_only_one_process_reclaims_at_a_time(queue: EventTable, database: str) -> None:
    a_batch(queue)
    queue.expire()
    with psycopg.connect(database) as other:
        other.execute("select pg_advisory_xact_lock(%s)", [RECLAIM_KEY])
        assert Watch(queue).reclaimed() == (0, 0, 0)
    assert Watch(queue).reclaimed()[0] == 3


def test_a_row_that_someone_holds_is_taken_back_in_the_next_pass(queue: EventTable, database: str) -> None:
    claimed = a_batch(queue)
    queue.expire()
    held = claimed.events[1].id
    with psycopg.connect(database) as person:
        person.execute("select from search_outbox_events where id = %s for update", [held])
        assert Watch(queue).reclaimed()[0] == 2
        assert queue.leases() == 1
    assert Watch(queue).reclaimed()[0] == 1
    assert (queue.leases(), queue.counts()) == (0, {"pending": 3})


def test_the_rows_of_a_lease_that_another_batch_holds_now_are_not_touched(queue: EventTable) -> None:
    """The old lease row is still there, as after a crash between two steps; the rows have a new token."""
    claimed = a_batch(queue, 1)
    queue.connection.execute("create table kept as select * from search_outbox_leases")
    queue.expire(claimed.token)
    queue.reclaims().step(alive)
    queue.connection.execute("insert into search_outbox_leases select * from kept")
    mine = queue.claim(queue.store("w2"))
    queue.expire(claimed.token)
    queue.reclaims().step(dead)
    row = queue.row(mine.events[0].id)
    assert (row.status, row.lease_token, row.abandoned_count) == ("processing", mine.token, 0)


def test_rows_set_to_processing_by_hand_are_swept_up(queue: EventTable) -> None:
    stray, leased = queue.produce(), None
    queue.connection.execute("update search_outbox_events set status = 'processing'")
    queue.produce()
    leased = queue.claim().events[0].id
    assert queue.reclaims().sweep() == Sweep(1, finished=True)
    assert (queue.row(stray).status, queue.row(leased).status) == ("pending", "processing")


def test_a_sweep_goes_through_all_open_rows_page_by_page(queue: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh rows, retries, suspects: whatever a person, or the table's last owner, left in `processing`."""
    monkeypatch.setattr("outbox.store.workers.ROWS_A_PAGE", 7)
    monkeypatch.setattr("outbox.store.workers.SWEEP_SECONDS", 60.0)  # of a busy machine
    for more in ({}, {"next_retry_at": "2030-01-01"}, {"next_retry_at": "infinity"}, {"abandoned_count": 2}):
        queue.produce_many(20, **more)
    queue.connection.execute("update search_outbox_events set status = 'processing' where entity_id = '15'")
    queue.produce("far", status="processing", lease_until="infinity", seq=-(2**63))
    queue.produce("theirs", status="processing", lease_until=datetime.now(UTC) + timedelta(minutes=5))
    reclaims = queue.reclaims()
    assert reclaims.sweep() == Sweep(5, finished=True)
    assert reclaims.sweep() == Sweep(0, finished=True)
    assert [row.entity_id for row in queue.rows("status = 'processing'")] == ["theirs"]


def test_reclaim_against_a_settle_that_waits_for_its_commit_lets_the_settle_win(queue: EventTable) -> None:
    claimed = a_batch(queue)
    queue.expire(claimed.token)
    with queue.pool().transaction() as settling:
        store = queue.store()
        with mock.patch.object(store.database, "connection", return_value=nullcontext(settling)):
            store.settle(claimed.token, [(event.id, DONE) for event in claimed.events])
        assert queue.reclaims().step(dead).rows == 0
    assert queue.counts() == {"done": 3}
