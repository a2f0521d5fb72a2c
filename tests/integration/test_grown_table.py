"""A table that changes under a busy daemon, whose statements are kept or not: it grows before anyone analyses it, or a
column gets another type."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import Connection

from outbox.errors import DatabaseDown
from outbox.policy.document import BATCH_BYTES
from outbox.policy.settle import DONE
from outbox.store.events import PostgresEvents
from outbox.store.pool import Database
from tests.fixtures.failures import open_database
from tests.fixtures.queue import EventTable, order

ROWS, LIMIT = 100_000, 500
CONNECTIONS = 3  # as two lanes have


def a_batch(events: PostgresEvents) -> int:
    claimed = events.claim(order(LIMIT, floor=0))
    ids = [event.id for event in claimed.events]
    assert events.newer_deletes(claimed.token, ids) == {}
    events.payloads(ids[:1])
    return events.settle(claimed.token, [(id, DONE) for id in ids]).kept


def sequential_scans(queue: EventTable) -> int:
    queue.connection.execute("select pg_stat_clear_snapshot()")
    return int(queue.value("select seq_scan from pg_stat_user_tables where relname = 'search_outbox_events'"))


@contextmanager
def every_connection(database: Database) -> Iterator[list[Connection[Any]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(database.connection()) for _ in range(CONNECTIONS)]


def flushed(database: Database, queue: EventTable) -> int:
    with every_connection(database) as connections:  # what a session has counted is reported when it is asked to
        for connection in connections:
            connection.execute("select pg_stat_force_next_flush()")
    return sequential_scans(queue)


@pytest.fixture(params=[True, False], ids=["kept", "not_kept"])
def warm(queue: EventTable, request: pytest.FixtureRequest) -> Iterator[tuple[Database, PostgresEvents]]:
    """Connections that have done every statement often enough to keep a plan for it, over no rows at all."""
    queue.connection.execute("alter table search_outbox_events set (autovacuum_enabled = off)")
    with open_database(queue.url, size=CONNECTIONS, prepared=request.param) as database:
        events = PostgresEvents(database, owner="w1", start_id=uuid4(), lease_seconds=60, batch_bytes=BATCH_BYTES)
        with every_connection(database):
            pass
        for _ in range(10 * CONNECTIONS):  # the pool hands them out in turn
            queue.produce_many(1)
            a_batch(events)
        yield database, events


def test_no_plan_of_the_empty_table_is_used_once_it_has_grown(
    queue: EventTable, warm: tuple[Database, PostgresEvents]
) -> None:
    """Found by the benchmark of peers: 6,000 events per second instead of 20,000, until autovacuum came by."""
    database, events = warm
    queue.produce_many(ROWS)
    before = flushed(database, queue)
    for _ in range(2 * CONNECTIONS):
        a_batch(events)
    assert flushed(database, queue) == before


@pytest.mark.parametrize("change", ["entity_type type varchar(200)", "routing type varchar(600)"])
def test_a_column_may_get_another_type_under_a_busy_daemon(
    queue: EventTable, warm: tuple[Database, PostgresEvents], change: str
) -> None:
    """A kept plan answers "cached plan must not change result type", on every connection and until a restart."""
    _, events = warm
    queue.connection.execute(f"alter table search_outbox_events alter column {change}".encode())
    for _ in range(2 * CONNECTIONS):
        queue.produce_many(1)
        assert a_batch(events) == 1


@pytest.mark.parametrize("warm", [True], indirect=True)
def test_a_claim_within_a_quota_is_lost_once_per_connection_and_comes_again(
    queue: EventTable, warm: tuple[Database, PostgresEvents]
) -> None:
    """In a transaction a refused plan cannot be made again: an outage of a moment, after which it is."""
    _, events = warm
    events.put_quota("article", 100, None)
    limited = replace(order(LIMIT, floor=0), entity_type="article")
    for _ in range(CONNECTIONS):
        events.claim_within_quota(limited)
    queue.connection.execute("alter table search_outbox_events alter column routing type varchar(600)")
    queue.produce_many(1)
    refused = 0
    for _ in range(CONNECTIONS + 1):
        try:
            claimed = events.claim_within_quota(replace(limited, token=uuid4()))
            break
        except DatabaseDown:
            refused += 1
    assert 1 <= refused <= CONNECTIONS
    assert len(claimed.events) == 1


@pytest.mark.parametrize("warm", [True], indirect=True)
def test_each_statement_of_a_batch_is_planned_once(warm: tuple[Database, PostgresEvents]) -> None:
    database, _ = warm
    with every_connection(database) as connections:
        for connection in connections:
            rows = connection.execute(
                "select custom_plans, generic_plans > 1 from pg_prepared_statements"
                " where statement like '%search_outbox_events%' and statement not like '%pg_prepared%'"
            ).fetchall()
            assert len(rows) >= 3  # claim, newer deletes, settle
            assert set(rows) == {(0, True)}


@pytest.mark.parametrize("warm", [True], indirect=True)
def test_what_a_users_trigger_says_is_not_taken_for_a_refused_plan(warm: tuple[Database, PostgresEvents]) -> None:
    """Such a batch is settled in halves, down to the row at fault; its connection stays."""
    with warm[0].connection() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="not with us"):
            connection.execute("do $$ begin raise exception 'not with us' using errcode = '0A000'; end $$")
        assert not connection.closed


@pytest.mark.parametrize("warm", [True], indirect=True)
def test_a_session_whose_plans_were_refused_is_left(queue: EventTable, warm: tuple[Database, PostgresEvents]) -> None:
    """psycopg before 3.3.6 goes on to use the names of what was deallocated."""
    database, events = warm
    queue.connection.execute("alter table search_outbox_events alter column routing type varchar(600)")
    queue.produce_many(1)
    before = set(sessions(database))
    for _ in range(2 * CONNECTIONS):
        queue.produce_many(1)
        a_batch(events)
    assert before.isdisjoint(sessions(database))


def sessions(database: Database) -> list[int]:
    with every_connection(database) as connections:
        return [connection.info.backend_pid for connection in connections]
