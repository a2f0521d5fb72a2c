"""Lab 4 (v2): with Elasticsearch down for good the attempts are used up, and the rows end where people see them."""

from tests.fixtures.metrics import metric
from tests.fixtures.processes import StartProcess, find_free_port
from tests.fixtures.queue import EventTable

PARAMETERS = {
    "OUTBOX_MAX_ATTEMPTS": "3",
    "OUTBOX_BASE_BACKOFF_SECONDS": "0.2",
    "OUTBOX_MAX_BACKOFF_SECONDS": "1.0",
}
ROWS = 120  # more than the brake would let through: it is not asked here


def test_lab_4_rows_that_have_used_up_their_attempts_fail(queue: EventTable, start_daemon: StartProcess) -> None:
    queue.produce_many(ROWS)
    daemon = start_daemon(**PARAMETERS, ELASTIC_URL=f"http://127.0.0.1:{find_free_port()}")
    daemon.wait_until(lambda: queue.counts() == {"failed": ROWS}, "all rows to fail")
    found = {(row.attempts, row.dead_reason, row.error_reason, row.next_retry_at) for row in queue.rows()}
    assert found == {(3, "max_attempts_exceeded", "connect", None)}
    daemon.wait_until(lambda: metric(daemon, "outbox_terminal_failed_total", reason="connect") == ROWS, "the metric")
    assert metric(daemon, "outbox_retry_scheduled_total") == 2 * ROWS
    assert metric(daemon, "outbox_failed_total") == 3 * ROWS
    assert daemon.terminate() == 0


def test_a_rows_own_limit_is_kept(queue: EventTable, start_daemon: StartProcess) -> None:
    one, default = queue.produce("one", max_attempts=1), queue.produce("default")
    daemon = start_daemon(**PARAMETERS, ELASTIC_URL=f"http://127.0.0.1:{find_free_port()}")
    daemon.wait_until(lambda: queue.counts() == {"failed": 2}, "both to fail")
    assert (queue.row(one).attempts, queue.row(default).attempts) == (1, 3)
