"""What a worker must never do, each a known bug of a program like this one: see docs/reliability.md, seeded bugs."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox.facts import Fact, NoProgress
from outbox.policy.backoff import Backoff
from outbox.policy.settle import DONE, RetryPolicy
from outbox.ports import BulkAction, WriteReport
from outbox.reindex.second_target import SecondTarget
from outbox.reindex.tables import PostgresMirrors
from outbox.store.pool import Database
from tests.fixtures.events import Time
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.processes import ROOT, clean_environment
from tests.fixtures.queue import EventTable, alive
from tests.fixtures.sinks import MemorySink
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually
from tests.fixtures.wired import Wire


def test_a_worker_that_claims_its_row_again_is_not_settled_by_its_earlier_self(queue: EventTable) -> None:
    """The same worker id, another claim: an owner's name is no fence."""
    id = queue.produce()
    store = queue.store("w1")
    earlier = queue.claim(store)
    queue.expire(earlier.token)
    queue.reclaims().step(alive)
    later = queue.claim(store)
    assert [event.id for event in later.events] == [id]
    assert list(store.settle(earlier.token, [(id, DONE)]).lost) == [id]
    assert store.release(earlier.token).rows == 0
    assert not store.renew(earlier.token)
    assert queue.row(id).status == "processing"
    assert list(store.settle(later.token, [(id, DONE)]).lost) == []
    assert queue.row(id).status == "done"


VIEW = """create view search_documents as
          select 'note'::text as entity_type, '1'::text as entity_id, '{"title": "x"}'::json as document"""


def test_a_batch_whose_session_was_ended_by_a_restart_is_projected_without_waiting_for_its_lease(
    queue: EventTable, wire: Wire
) -> None:
    """Claims go by other sessions than lookups: after a restart of PostgreSQL these are new, and those dead."""
    queue.connection.execute(VIEW.encode())
    lane = wire().lanes[0]

    def is_done(id: UUID) -> bool:
        """A busy Elasticsearch may want another try."""
        queue.make_due()
        lane.step()
        return bool(queue.row(id).status == "done")

    first = queue.produce("1", "refresh", entity_type="note", payload=None)
    eventually(lambda: is_done(first), what="the first one")
    of_lookups = "from pg_stat_activity where datname = current_database() and application_name = 'outbox-documents'"
    assert queue.value(f"select count(pg_terminate_backend(pid)) {of_lookups}") > 0
    eventually(lambda: queue.value(f"select count(*) {of_lookups}") == 0, what="their end")
    second = queue.produce("1", "refresh", entity_type="note", payload=None)
    lane.step()
    assert queue.row(second).status == "processing", "the lookup met the end of its session"
    lane.step()
    assert queue.row(second).status != "processing", "its lease lasts for a minute, and nobody reclaims here"
    assert queue.row(second).attempts <= 1
    eventually(lambda: is_done(second), what="the second one")


class WatchingSink(MemorySink):
    """Reads, while it is asked to write, at what the other sessions of this database are in the middle of."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__()
        self.connection = connection
        self.open: list[tuple[Any, ...]] = []

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        self.open += self.connection.execute(
            "select application_name, state, query from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
            " and xact_start is not null"
        ).fetchall()
        return super().write(actions, deadline_seconds)


def test_no_transaction_is_open_while_the_sink_is_asked(queue: EventTable) -> None:
    sink = WatchingSink(queue.connection)
    worker = InProcess(Parts(queue.store(), sink))
    queue.produce_many(3)
    queue.produce("gone", op="delete")
    worker.run()
    assert queue.counts() == {"done": 4}
    assert sink.open == []


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that this process sends, by its first words; not those that a new connection begins with, nor
    what only a slow machine sends (tests/integration/test_grown_table.py)."""
    sent: list[str] = []
    execute = psycopg.Cursor.execute

    def counted(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        if query not in ("select pg_backend_pid()", "show default_transaction_isolation"):
            sent.append(str(query)[:80])
        return execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    return sent


def test_an_idle_poll_is_one_statement_and_a_batch_is_two(queue: EventTable, statements: list[str]) -> None:
    worker = InProcess(Parts(queue.store(), MemorySink()))
    queue.produce()
    worker.run()  # the type is declared, and known
    statements.clear()
    assert worker.claimer.take(1).claimed is None
    assert len(statements) == 1, statements
    queue.produce_many(5)
    taken = worker.claimer.take(1)
    assert taken.claimed is not None
    statements.clear()
    worker.projector.project(taken.claimed, 1)
    assert len(statements) == 1, statements


SHIFTED = """
import sys
from uuid import UUID, uuid4
from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import RetryLater
from outbox.ports import ClaimOrder
from outbox.store.events import PostgresEvents
from outbox.store.pool import Database

database = Database(sys.argv[1], size=1)
database.open()
store = PostgresEvents(database, owner="w1", start_id=uuid4(), lease_seconds=60, batch_bytes=2**23)
first = store.claim(ClaimOrder(uuid4(), 1, 1))
store.settle(first.token, [(first.events[0].id, RetryLater(30.0, Failure(Reason.ES_429, "busy")))])
store.claim(ClaimOrder(uuid4(), 1, 1))
database.close()
"""


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_worker_whose_clock_is_an_hour_off_leases_and_retries_by_the_databases_clock(
    queue: EventTable, hours: int
) -> None:
    retried, leased = queue.produce("a"), queue.produce("b")
    clock = {
        "PYTHONPATH": f"{ROOT}:{Path(__file__).parents[1] / 'fixtures' / 'shifted_clock'}",
        "OUTBOX_TEST_CLOCK_SHIFT": str(hours * 3600),
    }
    child = [sys.executable, "-c", f"import time, datetime\n{SHIFTED}", queue.url]
    subprocess.run(
        child, env=clean_environment(clock), cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_SECONDS
    )
    ahead = "extract(epoch from {} - clock_timestamp())::float8 from search_outbox_events where id = %s"
    due = queue.value("select " + ahead.format("next_retry_at"), retried)
    until = queue.value("select " + ahead.format("lease_until"), leased)
    of_batch = queue.value(
        "select extract(epoch from lease_until - clock_timestamp())::float8 from search_outbox_leases"
    )
    assert 10 < due <= 30
    assert 40 < until <= 60
    assert 40 < of_batch <= 60


@pytest.mark.parametrize("policy", ["count", "pause"])
def test_a_busy_pool_while_mirroring_is_no_failure_of_elasticsearch(queue: EventTable, policy: str) -> None:
    """Nobody could say whether an index is rebuilt, so nothing was sent: no attempt, no error, no pause of the sink."""
    id = queue.produce()
    pool = Database(queue.url, size=1, timeout_seconds=0.05)
    pool.open()
    pool._pool.wait(PATIENCE_SECONDS)  # its first connection may take longer than that
    clock = Time()
    sink = MemorySink()
    facts: list[Fact] = []
    second = SecondTarget(sink, PostgresMirrors(pool, worker_id="w1", start_id=uuid4()), facts.append, clock)
    retry = RetryPolicy(10, Backoff(1.0, 300.0), outage_spends_attempts=policy == "count")
    worker = InProcess(Parts(queue.store(), second, clock=clock, retry=retry))
    with pool.connection():
        worker.lane.step()
    row = queue.row(id)
    assert (row.status, row.attempts, row.error_reason, row.next_retry_at) == ("pending", 0, None, None)
    assert (sink.documents, worker.gate.paused_targets(), queue.leases()) == ({}, frozenset(), 0)
    assert [fact.reason for fact in worker.of(NoProgress)] == ["database"]
    worker.lane.step()
    pool.close()
    assert queue.row(id).status == "done"
