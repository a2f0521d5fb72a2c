"""Claims are HOT updates by PostgreSQL's own count, and one slow index is enough to end that; settles are not, and have
room in the primary key."""

import psycopg

from outbox.policy.settle import DONE
from outbox.store.schema.migrate import migrate, status
from tests.fixtures.guide_table import SLOW_INDEXES, create_guide_table
from tests.fixtures.queue import EventTable, order
from tests.fixtures.waiting import eventually

# 80 % of rows without a payload at fillfactor 50, 83 to 100 % with one (at 45: 96 to 100 %), measured.
MOST = 0.7

CLAIM = """
with picked as materialized (
    select ctid from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
       and status = 'pending'
     order by seq limit 500 for no key update skip locked
)
update search_outbox_events
   set status = 'processing', owner = 'w1', lease_token = gen_random_uuid(), attempts = attempts + 1,
       lease_until = clock_timestamp() + interval '60 seconds', processing_started_at = clock_timestamp(),
       last_attempt_at = clock_timestamp(), next_retry_at = null, updated_at = clock_timestamp()
 where ctid = any (array(select ctid from picked))
"""


def hot_share_of_claims(conn: psycopg.Connection, rows: int) -> float:
    before = counters(conn)
    while conn.execute(CLAIM).rowcount:
        pass
    updated, hot = eventually(lambda: grown(conn, before, rows), what="the statistics")
    return hot / updated


def counters(conn: psycopg.Connection) -> tuple[int, int]:
    conn.execute("select pg_stat_force_next_flush()")
    conn.execute("select pg_stat_clear_snapshot()")
    row = conn.execute(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'search_outbox_events'"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def grown(conn: psycopg.Connection, before: tuple[int, int], rows: int) -> tuple[int, int] | None:
    updated, hot = counters(conn)
    return (updated - before[0], hot - before[1]) if updated - before[0] >= rows else None


def test_the_optional_indexes_keep_claims_hot(database: str, connection: psycopg.Connection) -> None:
    migrate(database, by_type=True, by_entity=True, notify=True)
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op)"
        " select 'block', n, 'upsert' from generate_series(1, 10000) as n"
    )
    assert hot_share_of_claims(connection, 10_000) > MOST
    assert status(database).slow_indexes == ()


def test_the_guides_indexes_spoil_hot_claims_until_they_are_dropped(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as conn:
        create_guide_table(conn)
        migrate(empty_database)
        assert [index.name for index in status(empty_database).slow_indexes] == SLOW_INDEXES
        insert = (
            "insert into search_outbox_events (entity_type, entity_id, op)"
            " select 'block', gen_random_uuid(), 'upsert' from generate_series(1, 5000)"
        )
        conn.execute(insert)
        assert hot_share_of_claims(conn, 5_000) == 0
        assert migrate(empty_database, drop_slow_indexes=True) == [f"dropped index {name}" for name in SLOW_INDEXES]
        conn.execute(insert)
        assert hot_share_of_claims(conn, 5_000) > MOST
    assert status(empty_database).slow_indexes == ()


def test_the_primary_key_leaves_room_for_what_a_settle_adds(queue: EventTable) -> None:
    """At PostgreSQL's own 90 % every page is split by its rows' settles: 1,240 KB after this, 936 with room."""
    assert queue.value("select reloptions from pg_class where relname = 'search_outbox_events_pkey'") == [
        "fillfactor=60"
    ]
    queue.connection.execute("alter table search_outbox_events set (autovacuum_enabled = off)")
    queue.produce_many(20_000)
    before = queue.value("select pg_relation_size('search_outbox_events_pkey')")
    events = queue.store()
    while (claimed := events.claim(order(500))).events:
        events.settle(claimed.token, [(event.id, DONE) for event in claimed.events])
    after = queue.value("select pg_relation_size('search_outbox_events_pkey')")
    assert after < before * 1.2
