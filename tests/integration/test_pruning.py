"""Pruning of finished events on real PostgreSQL: what goes, what versions still need, and how it goes on."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from outbox.app.chores import forgotten
from outbox.config import load_settings
from outbox.daemon.pruner import Pruner
from outbox.facts import Fact, TablePruned
from outbox.ops.retention import EventRetention
from outbox.policy.entity_type import EntityType, KeptBy
from outbox.policy.inputs import BadRequest
from outbox.store.audit import PostgresAudit
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.pool import Database
from outbox.store.retention import PostgresRetention
from outbox.store.schema.migrate import migrate
from tests.fixtures.audits import age_audit
from tests.fixtures.failures import ALICE, audit_counts
from tests.fixtures.waiting import eventually

OLD = "10 days"
NOW = "0 days"


@pytest.fixture(params=["no entity index", "entity index"])
def indexed(request: pytest.FixtureRequest, database: str) -> bool:
    if request.param == "entity index":
        migrate(database, by_entity=True)
    return bool(request.param == "entity index")


def event(
    connection: psycopg.Connection, entity: str, version: int, status: str = "done", op: str = "upsert", age: str = OLD
) -> str:
    """One event, named by its entity and version."""
    named = {"entity": entity, "version": version, "status": status, "op": op, "age": age}
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, event_version, status, failed_at, processed_at,"
        " next_retry_at, created_at) values ('block', %(entity)s, %(op)s, %(version)s, %(status)s,"
        " case when %(status)s = 'failed' then now() - %(age)s::interval end,"
        " case when %(status)s in ('done', 'discarded') then now() - %(age)s::interval end, null,"
        " now() - %(age)s::interval)",
        named,
    )
    if status == "discarded":
        connection.execute(
            "insert into search_outbox_discards (event_id, entity_type, entity_id, event_version, seq)"
            " select id, entity_type, entity_id, event_version, seq from search_outbox_events e"
            " where entity_id = %(entity)s and event_version = %(version)s on conflict do nothing",
            named,
        )
    return f"{entity}{version}"


def left(connection: psycopg.Connection) -> set[str]:
    rows = connection.execute("select entity_id || event_version from search_outbox_events").fetchall()
    return {row[0] for row in rows}


def desk(pool: Database) -> EventRetention:
    store = PostgresRetention(pool)
    return EventRetention(store.step, store.preview, PostgresAudit(pool), rows_a_step=2, pause=lambda _: None)


def prune_down_to(pool: Database, connection: psycopg.Connection, expected: set[str]) -> None:
    """A delete stays while any older transaction of the server is open, such as those of other tests."""

    def reached() -> bool:
        desk(pool).prune(5, ALICE)
        assert left(connection) >= expected
        return left(connection) == expected

    eventually(reached, what="what has to stay")


def keep(pool: Database, kept_by: KeptBy, *, moving: bool = False) -> None:
    about = EntityType(kept_by, moving=moving)
    PostgresEntityTypes(pool).change("block", about, ALICE, "why", None)


def test_of_a_type_that_the_view_keeps_finished_rows_that_are_old_enough_go_with_their_attempts(
    connection: psycopg.Connection, pool: Database, indexed: bool
) -> None:
    keep(pool, KeptBy.VIEW)
    for n in range(5):
        event(connection, f"d{n}", 1)
    event(connection, "x", 1, "discarded")
    kept = {
        event(connection, "new", 1, age=NOW),
        event(connection, "f", 1, "failed"),
        event(connection, "p", 1, "pending"),
    }
    connection.execute("insert into search_outbox_attempts (event_id, attempt) select id, 1 from search_outbox_events")
    found = desk(pool).prune(5, ALICE)
    assert (found.removed, found.kept) == (6, 0)
    assert left(connection) == kept
    assert connection.execute("select count(*) from search_outbox_attempts").fetchone() == (3,)
    assert connection.execute("select count(*) from search_outbox_discards").fetchone() == (0,)
    summaries = "select action, actor, detail from search_outbox_audit where action = 'EVENTS_PRUNE_SUMMARY'"
    rows = connection.execute(summaries).fetchall()
    assert {row[:2] for row in rows} == {("EVENTS_PRUNE_SUMMARY", "alice")}
    assert (sum(row[2]["removed"] for row in rows), len(rows) > 1) == (6, True), "each step says its own"


@pytest.mark.parametrize("status", ["pending", "processing", "failed", "discarded", "done"])
def test_a_done_delete_stays_while_an_older_event_of_its_entity_is_there(
    connection: psycopg.Connection, pool: Database, indexed: bool, status: str
) -> None:
    """Whatever its state: replayed, retried, or read by a repair it would bring the entity back."""
    event(connection, "a", 1, status, age=NOW)
    kept = {event(connection, "a", 2, op="delete"), "a1"}
    event(connection, "b", 2, op="delete")  # another entity's
    event(connection, "a", 0, op="delete")  # older than the event: it protects nothing
    prune_down_to(pool, connection, kept)
    connection.execute("delete from search_outbox_events where entity_id = 'a' and event_version = 1")
    prune_down_to(pool, connection, set())


def test_a_done_delete_stays_while_a_transaction_from_before_it_is_open(
    connection: psycopg.Connection, pool: Database, database: str
) -> None:
    """It may still write an older event of the entity."""
    with psycopg.connect(database) as writer:
        writer.execute("select pg_current_xact_id()")
        event(connection, "a", 2, op="delete")
        assert desk(pool).prune(5, ALICE).removed == 0
    with psycopg.connect(database) as later:
        later.execute("select pg_current_xact_id()")
        prune_down_to(pool, connection, set())


@pytest.mark.parametrize("kept", [None, "payload", "moving"])
def test_of_any_other_type_each_entitys_newest_done_event_stays_and_a_delete_goes_after_all_older_ones(
    connection: psycopg.Connection, pool: Database, indexed: bool, kept: str | None
) -> None:
    """Beside a view or not: what is declared decides."""
    connection.execute(
        "create view search_documents as select 'article' as entity_type, '1' as entity_id,"
        " json_build_object() as document"
    )
    if kept is not None:
        keep(pool, KeptBy.PAYLOAD if kept == "payload" else KeptBy.VIEW, moving=kept == "moving")
    for version in (1, 2, 3):
        event(connection, "a", version)
    event(connection, "b", 1)
    event(connection, "c", 1)
    event(connection, "c", 2, op="delete")
    event(connection, "d", 1)
    event(connection, "d", 2, "failed")  # not done: d1 is the newest that reached Elasticsearch
    event(connection, "e", 1, "discarded")
    event(connection, "f", 1)
    event(connection, "f", 2, op="refresh")  # of the time when the view kept it: no truth of a payload type
    steps = [{"a3", "b1", "c2", "d1", "d2", "f1"}, {"a3", "b1", "d1", "d2", "f1"}]
    desk(pool).prune(5, ALICE)
    assert left(connection) == steps[0]
    prune_down_to(pool, connection, steps[1])
    keep(pool, KeptBy.VIEW)
    desk(pool).prune(5, ALICE)
    assert left(connection) == {"d2"}


def test_a_type_is_not_declared_otherwise_while_its_events_are_removed(
    connection: psycopg.Connection, pool: Database, database: str
) -> None:
    keep(pool, KeptBy.VIEW)
    event(connection, "a", 1)
    with psycopg.connect(database) as changing:
        changing.execute("update search_outbox_entity_types set kept_by = 'payload'")
        with ThreadPoolExecutor(1) as one:
            pruned = one.submit(desk(pool).prune, 5, ALICE)
            blocked = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            eventually(
                lambda: connection.execute(blocked).fetchone() is not None, what="a step that waits for the type"
            )
            changing.commit()
            assert pruned.result(60).removed == 0
    assert left(connection) == {"a1"}


def test_a_dry_run_removes_nothing_and_an_age_must_be_meant(connection: psycopg.Connection, pool: Database) -> None:
    event(connection, "a", 1)
    found = desk(pool).prune(5, ALICE, dry_run=True)
    assert (found.due, found.removed, found.dry_run) == (1, 0, True)
    assert audit_counts(connection) == {}
    for wrong in (-1, float("nan"), 99_999):
        with pytest.raises(BadRequest):
            desk(pool).prune(wrong, ALICE)
    assert left(connection) == {"a1"}


class Passes:
    """A daemon's pruner on this database, with its facts."""

    def __init__(self, pool: Database, **keep: Any) -> None:
        self.facts: list[Fact] = []
        self.now = 0.0
        self.retention = PostgresRetention(pool)
        self.pruner = Pruner(
            self.retention.step,
            PostgresAudit(pool),
            interval_seconds=60,
            announce=self.facts.append,
            clock=lambda: self.now,
            worker="w1",
            **keep,
        )

    def run(self, after: float = 0.0) -> list[TablePruned]:
        self.now += after
        self.facts.clear()
        self.pruner.pass_once(threading.Event())
        return [fact for fact in self.facts if isinstance(fact, TablePruned)]


def test_a_daemon_prunes_events_by_age_and_writes_a_summary_at_once_then_one_per_hour(
    connection: psycopg.Connection, pool: Database
) -> None:
    passes = Passes(pool, events_days=5, audit_days=0, rows_a_step=2)
    for n in range(5):
        event(connection, f"a{n}", 1, op="refresh")
    (fact,) = passes.run()
    assert (fact.table, fact.count, fact.nothing_left) == ("search_outbox_events", 5, True)
    assert audit_counts(connection) == {"EVENTS_PRUNE_SUMMARY": 1}
    event(connection, "later", 1, op="refresh")
    passes.run(60)
    assert audit_counts(connection) == {"EVENTS_PRUNE_SUMMARY": 1}
    passes.run(3_600)
    rows = connection.execute("select actor, source, detail from search_outbox_audit order by id").fetchall()
    assert [(row[0], row[1], row[2]["removed"]) for row in rows] == [("w1", "daemon", 5), ("w1", "daemon", 1)]


def test_a_daemon_prunes_the_audit_by_its_ttl_and_the_database_writes_down_what_went(
    connection: psycopg.Connection, pool: Database
) -> None:
    passes = Passes(pool, events_days=0, audit_days=1e-9)
    for _ in range(8):
        connection.execute("insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'a', 'cli')")
    assert [fact.count for fact in passes.run()] == [0], "younger than seven days"
    age_audit(connection)
    assert passes.run(60) == [], "once an hour"
    (fact,) = passes.run(3_601)
    assert (fact.table, fact.count, fact.nothing_left) == ("search_outbox_audit", 8, True)
    assert audit_counts(connection) == {"AUDIT_PRUNE_SUMMARY": 1}
    row = connection.execute("select actor, source, detail from search_outbox_audit").fetchone()
    assert row is not None
    assert (row[0], row[1], row[2]["removed"]) == ("w1", "daemon", 8)
    age_audit(connection)
    assert [fact.count for fact in passes.run(3_601)] == [1]
    assert audit_counts(connection) == {"AUDIT_PRUNE_SUMMARY": 1}, "nothing goes without a row that says so"


def test_workers_that_are_long_gone_are_forgotten_by_the_daemon(connection: psycopg.Connection, pool: Database) -> None:
    """Pods have new names at every start: the table grew for ever. One whose lease is still there is judged first."""
    connection.execute(
        "insert into search_outbox_workers (worker_id, start_id, heartbeat_at)"
        " select name, gen_random_uuid(), now() - age::interval from (values"
        " ('beats', '1 second'), ('silent', '23 hours'), ('gone', '25 hours'), ('holds', '25 hours')) w (name, age)"
    )
    connection.execute(
        "insert into search_outbox_leases (token, owner, start_id, lease_until, ids, revision)"
        " select gen_random_uuid(), worker_id, start_id, now(), '{}', 1 from search_outbox_workers"
        " where worker_id = 'holds'"
    )
    settings = load_settings({"DATABASE_URL": "postgresql://127.0.0.1/x"})
    age, forget = forgotten(settings, pool)["search_outbox_workers"]
    assert forget(age, 10) == 1
    rows = connection.execute("select worker_id from search_outbox_workers order by 1").fetchall()
    assert rows == [("beats",), ("holds",), ("silent",)]
