"""Lab 6 (v4): signals, probes and systemd: a daemon that leaves in good order and says how it is."""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.metrics import ready
from tests.fixtures.processes import StartProcess, http_get
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import EventTable


def nothing_is_leased(queue: EventTable) -> bool:
    return queue.leases() == 0 and "processing" not in queue.counts()


AFTER_GRACE_SECONDS = 10.0  # what the units and the compose file leave a daemon after its grace, before kill -9


def test_a_signal_under_load_drains_and_exits_with_0_and_no_row_leased(
    queue: EventTable, start_daemon: StartProcess
) -> None:
    queue.produce_many(20_000)
    daemon = start_daemon()
    daemon.wait_until(lambda: queue.counts().get("done", 0) >= 500, "work under way")
    began = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert time.monotonic() - began < 25 + AFTER_GRACE_SECONDS
    assert nothing_is_leased(queue)
    assert daemon.facts("worker.draining")[0]["reason"] == "SIGTERM"
    stopped = daemon.facts("worker.stopped")[0]
    assert stopped["clean"] is True
    assert stopped["released"] == 0, "its lanes ended before the grace did"
    assert queue.counts()["pending"] + queue.counts()["done"] == 20_000
    spent = queue.value("select count(*) from search_outbox_events where status = 'pending' and attempts > 0")
    assert spent == 0, "what was given back has its attempt"


def test_readyz_is_503_at_once_while_a_slow_batch_is_finished(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    queue.produce_many(400)
    with proxy_to(elastic_url) as (proxy, url):
        proxy.hold(b"_bulk")
        daemon = start_daemon(ELASTIC_URL=url)
        daemon.wait_until(lambda: queue.counts().get("processing", 0) > 0, "a batch in flight")
        daemon.wait_until(lambda: ready(daemon)[0] == 200, "readiness")
        daemon.signal(signal.SIGTERM)
        status, told = daemon.wait_until(
            lambda: (r := ready(daemon))[0] == 503 and r, "503 while the batch is under way"
        )
        assert (status, told["checks"]["draining"]["ok"]) == (503, False)
        assert http_get(daemon.metrics_url + "/healthz")[0] == 200, "alive while it drains"
        proxy.heal()
        assert daemon.wait() == 0
    assert queue.counts() == {"done": 400}


def test_at_the_end_of_the_grace_the_rest_is_given_back_by_token(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    queue.produce_many(300)
    with proxy_to(elastic_url) as (proxy, url):
        daemon = start_daemon(ELASTIC_URL=url, OUTBOX_SHUTDOWN_GRACE_SECONDS="8", OUTBOX_LEASE_SECONDS="120")
        daemon.wait_until(lambda: queue.counts().get("done", 0) == 300, "work")
        proxy.hold(b"_bulk")
        queue.produce_many(300, entity_type="author")
        daemon.wait_until(lambda: proxy.counts["held"] > 0, "a request that hangs")
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        assert time.monotonic() - began < 8 + AFTER_GRACE_SECONDS
        released = daemon.facts("worker.stopped")[0]["released"]
        assert released > 0, "the end of the grace gave back what a lane held; its request would have gone on"
        assert nothing_is_leased(queue)
        assert queue.counts() == {"done": 300, "pending": 300}


def test_a_second_signal_leaves_at_once(queue: EventTable, start_daemon: StartProcess, elastic_url: str) -> None:
    queue.produce_many(300)
    with proxy_to(elastic_url) as (proxy, url):
        proxy.stall()
        daemon = start_daemon(ELASTIC_URL=url)
        daemon.wait_until(lambda: queue.counts().get("processing", 0) > 0, "a batch that hangs")
        daemon.signal(signal.SIGTERM)
        daemon.wait_for_fact("worker.draining")
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 143
        assert time.monotonic() - began < AFTER_GRACE_SECONDS
        assert daemon.facts("worker.stopped") == [], "it did not wait for the batch"
    assert queue.leases() > 0, "its leases run out by themselves"


def test_who_requires_elasticsearch_is_not_ready_without_it(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    with proxy_to(elastic_url) as (proxy, url):
        daemon = start_daemon(ELASTIC_URL=url, OUTBOX_REQUIRE_ES_READY="true")
        queue.produce_many(10)
        daemon.wait_until(lambda: queue.counts() == {"done": 10} and ready(daemon)[0] == 200, "readiness")
        proxy.cut()
        queue.produce_many(500, entity_type="author")
        daemon.wait_until(lambda: ready(daemon)[0] == 503, "503")
        assert http_get(daemon.metrics_url + "/healthz")[0] == 200


def test_postgresql_down_is_503_and_healthy_and_it_resumes_without_help(
    queue: EventTable, start_daemon: StartProcess, database: str
) -> None:
    with proxy_to(database) as (proxy, url):
        daemon = start_daemon(DATABASE_URL=url, OUTBOX_LEASE_SECONDS="6", OUTBOX_RECLAIM_INTERVAL_SECONDS="1")
        daemon.wait_until(lambda: ready(daemon)[0] == 200, "readiness")
        queue.produce_many(3_000)
        daemon.wait_until(lambda: queue.counts().get("done", 0) > 0, "work to begin")
        proxy.cut()
        daemon.wait_until(lambda: ready(daemon)[0] == 503, "503")
        assert http_get(daemon.metrics_url + "/healthz")[0] == 200
        proxy.heal()
        daemon.wait_until(lambda: queue.counts() == {"done": 3_000}, "everything done")
        daemon.wait_until(lambda: ready(daemon)[0] == 200, "readiness")
        dead = queue.value("select max(abandoned_count) from search_outbox_events")
        assert dead == 0, "an outage of the database is not a crash"
        assert daemon.terminate() == 0


def test_once_claims_one_batch_per_lane_settles_it_and_leaves(queue: EventTable, start_daemon: StartProcess) -> None:
    queue.produce_many(300)
    daemon = start_daemon("--once", OUTBOX_BATCH_SIZE="50", OUTBOX_CONCURRENCY="2")
    assert daemon.wait() == 0
    assert queue.counts() == {"done": 100, "pending": 200}
    assert nothing_is_leased(queue)


def test_max_runtime_drains_and_exits_with_0(queue: EventTable, start_daemon: StartProcess) -> None:
    queue.produce_many(100)
    daemon = start_daemon("--max-runtime", "2")
    assert daemon.wait() == 0
    assert daemon.facts("worker.draining")[0]["reason"] == "max runtime"
    assert queue.counts() == {"done": 100}
    assert daemon.facts("worker.stopped")[0]["clean"] is True


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator["Systemd"]:
    with Systemd(tmp_path / "notify") as listening:
        yield listening


class Systemd:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def __enter__(self) -> "Systemd":
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                self.said += self._socket.recv(4_096).decode().splitlines()
            except OSError:
                return


def test_systemd_starts_what_waits_for_postgresql_and_reads_what_for_in_the_status_line(
    queue: EventTable, start_daemon: StartProcess, systemd: Systemd, database: str
) -> None:
    def says(status: str) -> bool:
        return any(line.startswith(f"STATUS={status}") for line in systemd.said)

    with proxy_to(database) as (proxy, url):
        proxy.cut()
        daemon = start_daemon(DATABASE_URL=url, NOTIFY_SOCKET=str(systemd.path), WATCHDOG_USEC="2000000")
        daemon.wait_until(lambda: "READY=1" in systemd.said, "READY=1 without a database")
        assert systemd.said[1].startswith("STATUS=waiting for PostgreSQL")
        daemon.wait_for_fact("database.lost")
        assert ready(daemon)[0] == 503
        fed = systemd.said.count("WATCHDOG=1")
        daemon.wait_until(lambda: systemd.said.count("WATCHDOG=1") > fed, "the watchdog to be fed while it waits")
        proxy.heal()
        daemon.wait_until(lambda: says("projecting"), "STATUS=projecting")
        assert ready(daemon)[0] == 200
        pause = "insert into search_outbox_controls (scope, paused_by, reason) values ('*', 'ann', 'x')"
        queue.connection.execute(pause)
        daemon.wait_until(lambda: says("paused: operator *"), "STATUS=paused")
        assert daemon.terminate() == 0
        assert systemd.said.index("READY=1") < systemd.said.index("STOPPING=1")
