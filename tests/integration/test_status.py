"""`outbox status`, pauses and waiting, on real PostgreSQL."""

import psycopg
import pytest

from outbox.app.desk import QueueDesk
from outbox.ops.pauses import NeedsByType
from outbox.policy.audit import Actor, Source
from outbox.store.schema.migrate import migrate
from tests.fixtures.queue import EventTable

ALICE = Actor("alice", Source.CLI)


def test_what_waits_what_failed_and_who_works_are_counted(queue: EventTable, desk: QueueDesk) -> None:
    queue.produce_many(5)
    queue.produce_many(3, entity_type="author")
    queue.worker("w1").register(
        {"host": "h", "pid": 1, "version": "0.1.0", "heartbeat_seconds": 20, "entity_types": []}, None
    )
    queue.connection.execute(
        "update search_outbox_events set status = 'failed', error_reason = 'too_large' where entity_id = '1'"
    )
    queue.connection.execute("update search_outbox_events set status = 'done' where entity_id = '2'")
    queue.claim(limit=2)
    status = desk.status.read()
    assert (status.queue.lag, status.queue.inflight, status.queue.failed) == (4, 2, 2)
    assert status.failed_by_reason == {"too_large": 2}
    counts = {each.entity_type: (each.pending, each.processing, each.failed) for each in status.by_entity_type}
    assert sum(p + r for p, r, _ in counts.values()) == 4
    assert {name: failed for name, (_, _, failed) in counts.items()} == {"article": 1, "author": 1}
    assert status.queue.rate == pytest.approx(0.2)
    assert [(w.worker, w.alive, w.state) for w in status.workers] == [("w1", True, "running")]


def test_a_worker_that_is_silent_for_three_intervals_is_not_alive(queue: EventTable, desk: QueueDesk) -> None:
    queue.worker("w1").register(
        {"host": "h", "pid": 1, "version": "1", "heartbeat_seconds": 1, "entity_types": []}, None
    )
    queue.connection.execute("update search_outbox_workers set heartbeat_at = now() - interval '10 seconds'")
    (worker,) = desk.status.read().workers
    assert (worker.alive, worker.state) == (False, "silent")


def test_pauses_are_stored_audited_and_taken_back(desk: QueueDesk, connection: psycopg.Connection) -> None:
    desk.pauses.pause(ALICE, "reindexing")
    assert desk.status.read().sentence.startswith("Paused by an operator")
    assert desk.pauses.resume(ALICE, "done") is not None
    assert desk.pauses.resume(ALICE, "again") is None
    assert desk.status.read().pauses == []
    rows = connection.execute("select action, actor, source, reason from search_outbox_audit order by id").fetchall()
    assert rows == [("PAUSED", "alice", "cli", "reindexing"), ("RESUMED", "alice", "cli", "done")]


def test_a_pause_of_one_type_needs_its_indexes(desk: QueueDesk, database: str) -> None:
    with pytest.raises(NeedsByType) as refused:
        desk.pauses.pause(ALICE, "x", "article")
    assert refused.value.exit_code == 78
    migrate(database, by_type=True)
    assert desk.pauses.pause(ALICE, "x", "article")["scope"] == "type:article"
