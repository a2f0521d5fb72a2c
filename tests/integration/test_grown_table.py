"""A table that was empty when its statements were planned, and then takes a flood before anyone analyses it."""

from uuid import uuid4

from outbox.policy.settle import DONE
from outbox.store.events import PostgresEvents
from outbox.store.pool import Database
from tests.fixtures.queue import Queue, order

ROWS, LIMIT = 100_000, 500


def a_batch(events: PostgresEvents) -> None:
    claimed = events.claim(order(LIMIT, floor=0))
    events.settle(claimed.token, [(event.id, DONE) for event in claimed.events])


def sequential_scans(queue: Queue) -> int:
    queue.connection.execute("select pg_stat_clear_snapshot()")
    return int(queue.value("select seq_scan from pg_stat_user_tables where relname = 'search_outbox_events'"))


def test_plans_of_the_empty_table_do_not_outlive_the_first_slow_batch(queue: Queue) -> None:
    """Found by the benchmark of peers: 6,000 events a second instead of 20,000, until autovacuum came by."""
    queue.connection.execute("alter table search_outbox_events set (autovacuum_enabled = off)")
    database = Database(queue.url, size=1, application="grown")
    database.open()
    try:
        events = PostgresEvents(database, owner="w1", start_id=uuid4(), lease_seconds=60)
        for _ in range(10):  # generic plans, made for no rows at all
            queue.produce_many(1)
            a_batch(events)
        queue.produce_many(ROWS)
        a_batch(events)
        a_batch(events)
        with database.connection() as connection:  # what this session has counted is told when it is asked to
            connection.execute("select pg_stat_force_next_flush()")
        before = sequential_scans(queue)
        for _ in range(5):
            a_batch(events)
        with database.connection() as connection:
            connection.execute("select pg_stat_force_next_flush()")
        assert sequential_scans(queue) == before
    finally:
        database.close()
