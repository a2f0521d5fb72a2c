"""The guide's own SQL, letter by letter, on our table."""

import psycopg
import pytest

INSERT = """
INSERT INTO search_outbox_events (
	id,
	entity_type,
	entity_id,
	op,
	event_version,
	status,
	attempts,
	replay_count,
	created_at,
	updated_at
) VALUES (
	gen_random_uuid(),
	'block',
	gen_random_uuid(),
	'not-a-real-op',
	0,
	'pending',
	0,
	0,
	now(),
	now()
);
"""

BY_STATUS = """
SELECT status, count(*)
FROM search_outbox_events
WHERE processed_at IS NULL
GROUP BY status
ORDER BY status;
"""

STUCK = """
SELECT count(*) AS stuck_processing
FROM search_outbox_events
WHERE processed_at IS NULL
	AND status='processing'
	AND (
		(lease_until IS NOT NULL AND lease_until < now())
		OR (
			processing_started_at IS NOT NULL
			AND now() - processing_started_at > interval '10 minutes'
		)
	);
"""

OLDEST = """
SELECT id, created_at, attempts, next_retry_at, error_reason
FROM search_outbox_events
WHERE processed_at IS NULL AND status='pending'
ORDER BY created_at ASC
LIMIT 5;
"""

LAB_1_BY_STATUS = """
select status, count(*)
from search_outbox_events
group by status
order by status;
"""

LAB_1_STUCK = """
select count(*) as stuck
from search_outbox_events
where status='processing'
	and (
		lease_until < now()
		or (processing_started_at is not null and now() - processing_started_at > make_interval(secs => 600))
	);
"""


@pytest.fixture
def crashed(connection: psycopg.Connection) -> psycopg.Connection:
    """What lab 1 sees after the kill, in small: done, failed, pending, and two rows of a dead worker."""
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, status, lease_until, processing_started_at)"
        " values ('block', '1', 'upsert', 'done', null, null), ('block', '2', 'upsert', 'failed', null, null),"
        " ('block', '3', 'upsert', 'pending', null, null),"
        " ('block', '4', 'upsert', 'processing', now() - interval '1 second', now() - interval '11 seconds'),"
        " ('block', '5', 'upsert', 'processing', now() + interval '1 hour', now() - interval '11 minutes'),"
        " ('block', '6', 'upsert', 'processing', now() + interval '1 hour', now())"
    )
    return connection


def test_the_guides_insert_runs_as_written(connection: psycopg.Connection) -> None:
    connection.execute(INSERT)
    row = connection.execute(
        "select op, status, attempts, event_version, seq is not null, processed_at, failed_at from search_outbox_events"
    )
    assert row.fetchone() == ("not-a-real-op", "pending", 0, 0, True, None, None)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(BY_STATUS, [("failed", 1), ("pending", 1), ("processing", 3)], id="snapshot A"),
        pytest.param(STUCK, [(2,)], id="snapshot B"),
        pytest.param(
            LAB_1_BY_STATUS, [("done", 1), ("failed", 1), ("pending", 1), ("processing", 3)], id="lab 1 by status"
        ),
        pytest.param(LAB_1_STUCK, [(2,)], id="lab 1 stuck"),
    ],
)
def test_the_guides_snapshots_run_as_written(
    crashed: psycopg.Connection, query: str, expected: list[tuple[object, ...]]
) -> None:
    assert crashed.execute(query.encode()).fetchall() == expected


def test_the_guides_oldest_pending_runs_as_written(crashed: psycopg.Connection) -> None:
    rows = crashed.execute(OLDEST).fetchall()
    assert [(attempts, retry, reason) for _, _, attempts, retry, reason in rows] == [(0, None, None)]


def test_default_ids_are_time_ordered_uuids_of_version_7(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op)"
        " select 'block', n, 'upsert' from generate_series(1, 1000) as n"
    )
    ids = [row[0] for row in connection.execute("select id from search_outbox_events order by seq")]
    assert {(event_id.version, event_id.variant) for event_id in ids} == {(7, "specified in RFC 4122")}
    clock = connection.execute("select extract(epoch from clock_timestamp()) * 1000").fetchone()
    assert clock is not None
    assert all(0 <= float(clock[0]) - (event_id.int >> 80) < 60_000 for event_id in ids)
    assert sorted(event_id.int >> 80 for event_id in ids) == [event_id.int >> 80 for event_id in ids]
