"""Lab 2 (v2): Elasticsearch goes down during work and comes back; attempts grow slowly, nothing fails, all is done."""

from tests.fixtures.metrics import metric, ready
from tests.fixtures.processes import StartProcess, find_free_port, http_get
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import eventually

ROWS = 4_000


def waiting(queue: EventTable) -> list[tuple[str, int, bool]]:
    """(reason, attempts, in the future) of the rows that were tried and wait."""
    return queue.connection.execute(
        "select error_reason, attempts, coalesce(next_retry_at > now(), false) from search_outbox_events"
        " where status = 'pending' and attempts > 0"
    ).fetchall()


def test_lab_2_an_outage_in_mid_work_is_survived(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    queue.produce_many(ROWS)
    with proxy_to(elastic_url) as (proxy, url):
        proxy.slow(0.1)
        daemon = start_daemon(ELASTIC_URL=url)
        daemon.wait_until(lambda: queue.counts().get("done", 0) > 0, "work to begin")
        proxy.cut()
        tried = daemon.wait_until(
            lambda: (rows := waiting(queue)) and max(row[1] for row in rows) >= 2 and rows, "second attempts"
        )
        assert {row[0] for row in tried} <= {"connect", None}
        assert any(row[2] for row in tried), "due in the future"
        spread = queue.value(
            "select count(distinct next_retry_at) from search_outbox_events where next_retry_at is not null"
        )
        assert spread > 100, "jittered, not in step"
        first = metric(daemon, "outbox_retry_scheduled_total")
        assert first > 0
        daemon.wait_until(
            lambda: metric(daemon, "outbox_retry_scheduled_total") > first, "more retries to be scheduled"
        )
        seen: set[tuple[int, int]] = set()

        def degraded() -> bool:
            status, told = ready(daemon)
            seen.add((http_get(daemon.metrics_url + "/healthz")[0], status))
            return bool(told["status"] == "degraded")

        daemon.wait_until(degraded, "readiness to read degraded")
        for _ in range(10):
            degraded()
        assert seen == {(200, 200)}, "healthy and ready throughout"
        assert "failed" not in queue.counts()
        assert max(row[1] for row in waiting(queue)) <= 6, "attempts do not explode"

        proxy.heal()
        daemon.wait_until(lambda: queue.counts() == {"done": ROWS}, "everything done")
        daemon.wait_until(lambda: ready(daemon)[1]["status"] == "ready", "readiness")
        assert metric(daemon, "outbox_terminal_failed_total") == 0
        assert daemon.terminate() == 0


def test_lab_2_a_wrong_elastic_url_costs_one_batch_per_lane_and_wait(
    queue: EventTable, start_daemon: StartProcess
) -> None:
    queue.produce_many(10_000)
    daemon = start_daemon(ELASTIC_URL=f"http://127.0.0.1:{find_free_port()}")
    daemon.wait_for_http("/healthz")
    daemon.wait_until(lambda: metric(daemon, "outbox_retry_scheduled_total") >= 1_000, "a few batches tried")
    touched = queue.value("select count(*) from search_outbox_events where attempts > 0")
    assert touched <= 8_000, "rows that are not claimed spend nothing"
    reasons = queue.value("select array_agg(distinct error_reason) from search_outbox_events where attempts > 0")
    assert set(reasons) - {None} == {"connect"}
    assert queue.counts().get("failed", 0) == 0
    assert http_get(daemon.metrics_url + "/healthz")[0] == 200
    assert daemon.terminate() == 0
    assert queue.leases() == 0


def test_a_request_to_a_stalled_server_ends_in_time_and_no_lease_is_lost(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    queue.produce_many(1_000)
    with proxy_to(elastic_url) as (proxy, url):
        daemon = start_daemon(ELASTIC_URL=url, ELASTIC_TIMEOUT_SECONDS="2", OUTBOX_LEASE_SECONDS="6")
        daemon.wait_until(lambda: queue.counts().get("done", 0) > 0, "work to begin")
        proxy.stall()
        queue.produce_many(500, entity_type="author")
        eventually(
            lambda: queue.value("select count(*) from search_outbox_events where error_reason = 'timeout'"),
            what="rows that timed out",
        )
        proxy.heal()
        daemon.wait_until(lambda: queue.counts() == {"done": 1_500}, "everything done")
        assert metric(daemon, "outbox_lease_lost_total") == 0
