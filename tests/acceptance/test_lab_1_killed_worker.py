"""Lab 1 (v1): a worker killed in mid-work leaves rows behind its lease; a restart with the same id takes them back."""

import json
import time

from tests.fixtures.metrics import metric
from tests.fixtures.processes import StartProcess
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import eventually

PARAMETERS = {
    "OUTBOX_WORKER_ID": "w1",
    "OUTBOX_LEASE_SECONDS": "10",
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "2",
    "OUTBOX_MAX_PROCESSING_SECONDS": "60",
}
# The guide's query B, word for word.
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
ROWS = 10_000  # more than two lanes finish before the proxy stalls


def at_rest(queue: EventTable) -> bool:
    """What was answered before the proxy stalled is settled by now: a lane needs milliseconds for that."""
    before = queue.counts()
    time.sleep(0.5)
    return before.get("processing", 0) >= 500 and queue.counts() == before


def test_lab_1_a_killed_workers_rows_come_back_after_its_lease(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    queue.produce_many(ROWS, payload=json.dumps({"text": "x" * 200}))
    with proxy_to(elastic_url) as (proxy, url):
        proxy.slow(0.2)
        first = start_daemon(**PARAMETERS, ELASTIC_URL=url)
        eventually(lambda: queue.counts().get("done", 0) > 0, what="work to begin")
        proxy.stall()
        eventually(lambda: at_rest(queue), what="rows in processing, and none of them settled any more")
        first.kill()
        left = queue.counts()["processing"]
        assert left > 0
        proxy.heal()
        eventually(lambda: queue.value(STUCK) == left, what="the stuck count to rise")

        second = start_daemon(**PARAMETERS, ELASTIC_URL=url)
        line = f"Reclaimed {left} stuck outbox events (expired lease or max processing exceeded)"
        assert second.wait_for_fact(line)["counts"]["abandoned"] == left
        second.wait_until(lambda: queue.counts() == {"done": ROWS}, "everything done")
        assert queue.value(STUCK) == 0
        second.wait_until(
            lambda: (
                metric(second, "outbox_sample_timestamp_seconds") > 0
                and metric(second, "outbox_stuck_processing_events") == 0
                and metric(second, "outbox_lag_events") == 0
            ),
            "the gauges to come down",
        )
        assert metric(second, "outbox_reclaimed_total") == left
        assert metric(second, "outbox_processed_total") > 0
        assert second.terminate() == 0
    assert queue.leases() == 0
