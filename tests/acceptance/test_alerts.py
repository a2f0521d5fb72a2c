"""A real outage, a real projector, a real Prometheus with the shipped rules: the alert fires, and it ends."""

from labs.prometheus import Prometheus
from labs.proxy import Proxy
from tests.fixtures.processes import StartProcess
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import eventually

SPEED = 30  # five minutes of a rule are ten seconds here
# A request ends within a tenth of that, and so does the rest of a lane after it, so that each window has many. And so
# many attempts that the outage lasts until the alert fires, however long that takes on a busy machine.
OUTAGE = {
    "ELASTIC_TIMEOUT_SECONDS": "1",
    "OUTBOX_BASE_BACKOFF_SECONDS": "0.2",
    "OUTBOX_MAX_BACKOFF_SECONDS": "1",
    "OUTBOX_MAX_ATTEMPTS": "1000",
    "OUTBOX_BATCH_SIZE": "10",
}
UNANSWERED = "projection:outbox_es_bulk_requests_unanswered:rate5m > 0"


def test_an_outage_of_elasticsearch_fires_and_its_end_is_seen(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    with Proxy.to(elastic_url) as proxy:
        daemon = start_daemon(ELASTIC_URL=proxy.url(elastic_url), **OUTAGE)
        daemon.wait_for_fact("worker.started")
        with Prometheus([daemon.metrics_url.removeprefix("http://")], speed=SPEED) as prometheus:
            queue.produce_many(20)
            eventually(lambda: queue.counts() == {"done": 20})
            eventually(lambda: prometheus.query("projection:outbox_processed:rate5m"))
            assert not prometheus.firing()

            proxy.cut()
            queue.produce_many(200, entity_type="author")
            eventually(lambda: prometheus.query(UNANSWERED))
            eventually(lambda: "OutboxElasticsearchFailing" in prometheus.firing())
            [alert] = [alert for alert in prometheus.alerts() if alert.name == "OutboxElasticsearchFailing"]
            assert alert.labels["severity"] == "warning"
            assert alert.annotations["runbook"] == "docs/runbooks/OutboxElasticsearchFailing.md"

            proxy.heal()
            eventually(lambda: queue.counts() == {"done": 220})
            eventually(lambda: not prometheus.firing())
