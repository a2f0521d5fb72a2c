"""A table that was empty when its statements were planned, and then takes a flood before anyone analyses it."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from psycopg import Connection

from outbox.policy.memory import BATCH_BYTES
from outbox.policy.settle import DONE
from outbox.store.events import PostgresEvents
from outbox.store.pool import Database
from tests.fixtures.queue import Queue, order

ROWS, LIMIT = 100_000, 500
CONNECTIONS = 3  # as two lanes have


def a_batch(events: PostgresEvents, *, rested: bool = False) -> None:
    claimed = events.claim(replace(order(LIMIT, floor=0), rested=rested))
    events.settle(claimed.token, [(event.id, DONE) for event in claimed.events])


def sequential_scans(queue: Queue) -> int:
    queue.connection.execute("select pg_stat_clear_snapshot()")
    return int(queue.value("select seq_scan from pg_stat_user_tables where relname = 'search_outbox_events'"))


@contextmanager
def every_connection(database: Database) -> Iterator[list[Connection[Any]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(database.connection()) for _ in range(CONNECTIONS)]


def flushed(database: Database, queue: Queue) -> int:
    with every_connection(database) as connections:  # what a session has counted is told when it is asked to
        for connection in connections:
            connection.execute("select pg_stat_force_next_flush()")
    return sequential_scans(queue)


@pytest.fixture
def grown(queue: Queue) -> Iterator[tuple[Database, PostgresEvents]]:
    """Generic plans, made for no rows at all; and then a flood."""
    queue.connection.execute("alter table search_outbox_events set (autovacuum_enabled = off)")
    database = Database(queue.url, size=CONNECTIONS, application="grown")
    database.open()
    try:
        events = PostgresEvents(database, owner="w1", start_id=uuid4(), lease_seconds=60, batch_bytes=BATCH_BYTES)
        with every_connection(database):
            pass
        for _ in range(10 * CONNECTIONS):  # the pool hands them out in turn
            queue.produce_many(1)
            a_batch(events)
        queue.produce_many(ROWS)
        yield database, events
    finally:
        database.close()


def test_plans_of_the_empty_table_do_not_outlive_the_first_slow_batch(
    queue: Queue, grown: tuple[Database, PostgresEvents]
) -> None:
    """Found by the benchmark of peers: 6,000 events a second instead of 20,000, until autovacuum came by."""
    database, events = grown
    for _ in range(2 * CONNECTIONS):
        a_batch(events)
    before = flushed(database, queue)
    for _ in range(5 * CONNECTIONS):
        a_batch(events)
    assert flushed(database, queue) == before


def test_the_first_batch_after_a_rest_does_not_use_them_at_all(
    queue: Queue, grown: tuple[Database, PostgresEvents], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claim and settle: each took a quarter of a second once a connection. No statement counts as slow here: on a busy
    machine one would discard the plans by itself, and this would show nothing."""
    monkeypatch.setattr("outbox.store.pool.SLOW_SECONDS", math.inf)
    database, events = grown
    before = flushed(database, queue)
    a_batch(events, rested=True)
    for _ in range(5 * CONNECTIONS):
        a_batch(events)
    assert flushed(database, queue) == before
