"""The guard: people write the status, the times follow; and it sleeps while the product writes."""

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.fixtures.queue import EventTable

Row = dict[str, Any]
ERRORS = ("error_reason", "error_code", "error", "error_fingerprint", "dead_reason", "error_detail")


@pytest.fixture
def rows(connection: psycopg.Connection) -> psycopg.Connection[Row]:
    """A connection that reads rows as dicts, with one event that failed after three attempts."""
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, status, failed_at, attempts, abandoned_count,"
        " error_reason, error_code, error, error_fingerprint, dead_reason, error_detail)"
        " values ('block', '1', 'upsert', 'failed', '2026-02-03', 3, 1, 'connect', 'OUTBOX_EXECUTION_FAILED', 'boom',"
        " 'f1', 'max_attempts_exceeded', '{}')"
    )
    connection.row_factory = dict_row  # type: ignore[assignment]
    return connection  # type: ignore[return-value]


def change(conn: psycopg.Connection[Row], assignment: str) -> Row:
    row = conn.execute(f"update search_outbox_events set {assignment} returning *".encode()).fetchone()
    assert row is not None
    return row


def test_pending_by_hand_on_a_failed_row_gets_it_projected(rows: psycopg.Connection[Row]) -> None:
    row = change(rows, "status = 'pending'")
    assert (row["processed_at"], row["failed_at"], row["next_retry_at"]) == (None, None, None)
    assert (row["attempts"], row["abandoned_count"]) == (0, 0)
    assert [row[name] for name in ERRORS] == [None] * len(ERRORS)


def test_done_by_hand_sets_processed_at_and_clears_the_failure(rows: psycopg.Connection[Row]) -> None:
    row = change(rows, "status = 'done'")
    assert row["processed_at"] is not None
    assert row["failed_at"] is None
    assert row["attempts"] == 3
    assert [row[name] for name in ERRORS] == [None] * len(ERRORS)


def test_discarded_by_hand_keeps_the_reason_of_the_failure(rows: psycopg.Connection[Row]) -> None:
    row = change(rows, "status = 'discarded'")
    assert row["processed_at"] is not None
    assert row["failed_at"] is None
    assert row["error_reason"] == "connect"


def test_failed_by_hand_on_a_claimed_row_takes_it_out_of_every_queue(rows: psycopg.Connection[Row]) -> None:
    change(
        rows,
        "status = 'processing', failed_at = null, owner = 'w1', lease_until = now(), processing_started_at = now()",
    )
    row = change(rows, "status = 'failed'")
    assert row["failed_at"] is not None
    assert (row["owner"], row["lease_until"], row["processing_started_at"]) == (None, None, None)


def test_a_row_without_seq_gets_one_when_it_is_opened_again(rows: psycopg.Connection[Row]) -> None:
    change(rows, "status = 'done', seq = null")
    assert change(rows, "status = 'pending'")["seq"] is not None


def test_a_time_that_contradicts_the_status_gives_way(rows: psycopg.Connection[Row]) -> None:
    assert change(rows, "processed_at = now()")["processed_at"] is None


def test_a_finished_row_may_be_inserted_without_its_time(rows: psycopg.Connection[Row]) -> None:
    row = rows.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, status) values ('block', '2', 'upsert', 'done')"
        " returning processed_at"
    ).fetchone()
    assert row is not None
    assert row["processed_at"] is not None


CONSISTENT = [
    ("status = 'pending', failed_at = null", "replay"),
    ("status = 'processing', failed_at = null", "claim"),
    ("status = 'pending', failed_at = null, next_retry_at = now()", "retry"),
    ("status = 'done', failed_at = null, processed_at = now()", "settle"),
    ("status = 'discarded', failed_at = null, processed_at = now()", "discard"),
]


@pytest.mark.parametrize(("assignment", "what"), CONSISTENT, ids=[row[1] for row in CONSISTENT])
def test_the_guard_sleeps_on_what_the_product_writes(rows: psycopg.Connection[Row], assignment: str, what: str) -> None:
    row = change(rows, f"{assignment}, updated_at = '2026-02-05'")
    assert row["updated_at"].day == 5
    assert row["error_reason"] == "connect"


def test_a_row_that_was_given_no_place_in_the_order_gets_one(queue: EventTable) -> None:
    """A producer that names every column writes null over the default; no claim would ever have seen it."""
    id = queue.produce("a", seq=None)
    before = queue.row(queue.produce("b")).seq
    assert 0 < queue.row(id).seq < before
    assert id in [event.id for event in queue.claim().events]
