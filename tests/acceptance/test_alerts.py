"""A real outage, a real projector, a real Prometheus with the shipped rules: the alert fires, and it ends."""

from labs.prometheus import Prometheus
from labs.proxy import Proxy
from tests.fixtures.processes import StartProcess
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import eventually

SPEED = 60  # five minutes of a rule are five seconds here


def test_an_outage_of_elasticsearch_fires_and_its_end_is_seen(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    with Proxy.to(elastic_url) as proxy:
        # So many attempts that the outage lasts until the alert fires, however long that takes on a busy machine.
        attempts = {"OUTBOX_MAX_BACKOFF_SECONDS": "1", "OUTBOX_MAX_ATTEMPTS": "1000"}
        daemon = start_daemon(ELASTIC_URL=proxy.url(elastic_url), **attempts)
        daemon.wait_for_fact("worker.started")
        with Prometheus([daemon.metrics_url.removeprefix("http://")], speed=SPEED) as prometheus:
            queue.produce_many(20)
            eventually(lambda: queue.counts() == {"done": 20})
            eventually(lambda: prometheus.query("projection:outbox_processed:rate5m"))
            assert not prometheus.firing()

            proxy.cut()
            queue.produce_many(20, entity_type="author")
            eventually(lambda: "OutboxElasticsearchFailing" in prometheus.firing())
            [alert] = [alert for alert in prometheus.alerts() if alert.name == "OutboxElasticsearchFailing"]
            assert alert.labels["severity"] == "warning"
            assert alert.annotations["runbook"] == "docs/runbooks/OutboxElasticsearchFailing.md"

            proxy.heal()
            eventually(lambda: queue.counts() == {"done": 40})
            eventually(lambda: not prometheus.firing())


def test_a_pause_names_its_cause(queue: EventTable, start_daemon: StartProcess, elastic_url: str) -> None:
    with Proxy.to(elastic_url) as proxy:
        daemon = start_daemon(ELASTIC_URL=proxy.url(elastic_url), OUTBOX_OUTAGE_POLICY="pause")
        daemon.wait_for_fact("worker.started")
        with Prometheus([daemon.metrics_url.removeprefix("http://")], speed=SPEED) as prometheus:
            proxy.cut()
            queue.produce_many(20)
            eventually(lambda: "OutboxPaused" in prometheus.firing())
            causes = {alert.labels["cause"] for alert in prometheus.alerts() if alert.name == "OutboxPaused"}
            assert causes == {"connect"}
            assert set(queue.counts()) == {"pending"}
