"""Lab 3 (v2): the guide's bad row, by the guide's own INSERT: failed at once, reported plainly, its neighbours done."""

from tests.fixtures.metrics import metric
from tests.fixtures.processes import StartProcess
from tests.fixtures.queue import EventTable

# From the guide, word for word.
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


def test_lab_3_a_bad_op_fails_at_once_and_its_neighbours_are_done(
    queue: EventTable, start_daemon: StartProcess
) -> None:
    queue.produce_many(20)
    queue.connection.execute(INSERT)
    queue.produce_many(20, entity_type="author")
    daemon = start_daemon()
    daemon.wait_until(lambda: queue.counts() == {"done": 40, "failed": 1}, "all of them to end")
    (row,) = queue.rows("status = 'failed'")
    assert (row.attempts, row.next_retry_at, row.error_reason) == (1, None, "deterministic_exception")
    assert "Unknown outbox op: 'not-a-real-op'" in row.error
    assert (row.error_code, row.dead_reason) == ("OUTBOX_PAYLOAD_UNSUPPORTED", "non_retryable")
    told = daemon.wait_for_fact("event.failed")
    assert told["error"] == "ValueError: Unknown outbox op: 'not-a-real-op'"
    assert (told["event_id"], told["entity_type"], told["attempts"]) == (str(row.id), "block", 1)
    daemon.wait_until(
        lambda: metric(daemon, "outbox_terminal_failed_total", reason="deterministic_exception") == 1, "the metric"
    )
    assert metric(daemon, "outbox_failed_total") == 1
    assert daemon.terminate() == 0
