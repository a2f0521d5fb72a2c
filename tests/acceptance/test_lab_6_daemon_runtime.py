"""The guide's lab 6: signals, probes, one batch, a bounded run; real processes on real servers."""

import json
import time

import psycopg

from labs.proxy import Proxy
from tests.fixtures.processes import RunningProcess, StartProcess, http_get
from tests.fixtures.rows import counts, produce


def test_lab_6_a_drain_leaves_with_0_and_nothing_leased(
    start_daemon: StartProcess, connection: psycopg.Connection
) -> None:
    produce(connection, 30_000)
    daemon = start_daemon()
    daemon.wait_for_http("/readyz")
    daemon.wait_until(lambda: counts(connection).get("done", 0) > 500, "work under way")
    began = time.monotonic()
    daemon.signal(15)
    daemon.wait_until(lambda: _not_ready(daemon), "readyz 503 at once", 5)
    assert daemon.wait(30) == 0
    assert time.monotonic() - began < 25
    assert "processing" not in counts(connection)
    assert connection.execute("select count(*) from search_outbox_leases").fetchone() == (0,)
    assert [fact["event"] for fact in daemon.facts()][-1] == "worker.stopped"


def _not_ready(daemon: RunningProcess) -> bool:
    try:
        return http_get(daemon.metrics_url + "/readyz")[0] == 503
    except OSError:
        return daemon.returncode is not None  # gone already: readiness ended with it


def test_lab_6_a_second_signal_leaves_at_once(
    start_daemon: StartProcess, connection: psycopg.Connection, elastic_url: str
) -> None:
    produce(connection, 500)
    with Proxy.to(elastic_url) as link:
        link.stall()
        daemon = start_daemon(ELASTIC_URL=link.url(elastic_url))
        daemon.wait_until(lambda: counts(connection).get("processing", 0) > 0, "rows in its hands")
        daemon.signal(15)
        daemon.wait_for_fact("worker.draining")
        daemon.signal(15)
        assert daemon.wait(5) == 143


def test_lab_6_probes_tell_an_outage_from_a_dead_process(
    start_daemon: StartProcess, connection: psycopg.Connection, elastic_url: str
) -> None:
    with Proxy.to(elastic_url) as link:
        daemon = start_daemon(ELASTIC_URL=link.url(elastic_url))
        daemon.wait_for_http("/readyz")
        link.cut()
        produce(connection, 500)
        degraded = daemon.wait_until(
            lambda: (body := json.loads(daemon.wait_for_http("/readyz")))["status"] == "degraded" and body, "degraded"
        )
        assert degraded["checks"]["elasticsearch"]["ok"] is False
        assert http_get(daemon.metrics_url + "/healthz")[0] == 200
        link.heal()
        daemon.wait_until(
            lambda: json.loads(daemon.wait_for_http("/readyz"))["status"] == "ready", "ready again by itself", 60
        )


def test_once_takes_one_batch_a_lane_and_leaves(start_daemon: StartProcess, connection: psycopg.Connection) -> None:
    produce(connection, 1_000)
    daemon = start_daemon("--once", OUTBOX_BATCH_SIZE="100", OUTBOX_CONCURRENCY="2", OUTBOX_METRICS_PORT="0")
    assert daemon.wait(30) == 0
    assert counts(connection) == {"done": 200, "pending": 800}


def test_max_runtime_drains_and_leaves(start_daemon: StartProcess, connection: psycopg.Connection) -> None:
    produce(connection, 100)
    daemon = start_daemon("--max-runtime", "3")
    assert daemon.wait(30) == 0
    assert counts(connection) == {"done": 100}
