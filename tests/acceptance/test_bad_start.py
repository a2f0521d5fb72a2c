"""A projector started into a bad world: Elasticsearch down or another product, a worker id that is taken."""

import json

import pytest

from tests.fixtures.processes import StartProcess
from tests.fixtures.queue import EventTable
from tests.fixtures.scripted import answer, scripted

pytestmark = pytest.mark.busy


def test_elasticsearch_down_at_the_start_is_an_outage_like_any_other(
    start_daemon: StartProcess, queue: EventTable
) -> None:
    queue.produce_many(3)
    daemon = start_daemon(ELASTIC_URL="http://127.0.0.1:1")
    daemon.wait_for_fact("event.retry_scheduled")

    def waiting() -> bool:
        return [(row.error_reason, row.next_retry_at is not None) for row in queue.rows()] == [("connect", True)] * 3

    daemon.wait_until(waiting, "all rows waiting for a retry")
    # One failure is no outage to a probe; a few in a row are.
    daemon.wait_until(lambda: json.loads(daemon.wait_for_http("/readyz"))["status"] == "degraded", "degraded")
    assert daemon.terminate() == 0
    assert {row.status for row in queue.rows()} == {"pending"}
    assert queue.leases() == 0


def test_another_product_is_refused_and_nothing_is_spent(start_daemon: StartProcess, queue: EventTable) -> None:
    queue.produce_many(3)
    old = answer(200, b'{"version": {"distribution": "opensearch", "number": "1.3.20"}}', headers="")
    with scripted(lambda _: old, lambda _: old) as server:
        daemon = start_daemon(ELASTIC_URL=server.url)
        paused = daemon.wait_for_fact("sink.paused")
        assert "OpenSearch 1.3.20 is too old" in json.dumps(paused)
        daemon.wait_until(lambda: queue.counts() == {"pending": 3}, "all rows given back")
        assert daemon.terminate() == 0
        assert server.bulks == []
    assert {(row.attempts, row.status) for row in queue.rows()} == {(0, "pending")}
