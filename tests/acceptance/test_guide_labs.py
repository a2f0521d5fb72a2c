"""The guide's labs 1 to 4 and 6 with its own parameters: real processes, real servers, the results that it lists."""

import json
import re
import time
import uuid

import psycopg

from labs.proxy import Proxy
from tests.fixtures.processes import RunningProcess, StartProcess, http_get
from tests.fixtures.waiting import eventually

STUCK = """select count(*) as stuck
from search_outbox_events
where status='processing'
	and (
		lease_until < now()
		or (processing_started_at is not null and now() - processing_started_at > make_interval(secs => 600))
	);"""
BAD_OP = """INSERT INTO search_outbox_events (
	id, entity_type, entity_id, op, event_version, status, attempts, replay_count, created_at, updated_at
) VALUES (
	gen_random_uuid(), 'block', gen_random_uuid(), 'not-a-real-op', 0, 'pending', 0, 0, now(), now()
);"""
RECLAIMED = re.compile(r"^Reclaimed \d+ stuck outbox events \(expired lease or max processing exceeded\)$")


def produce(connection: psycopg.Connection, count: int) -> None:
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload)"
        " select 'block', g::text, 'upsert', json_build_object('n', g) from generate_series(1, %s) g",
        [count],
    )


def counts(connection: psycopg.Connection) -> dict[str, int]:
    return dict(connection.execute("select status, count(*)::int from search_outbox_events group by 1").fetchall())


def metric(daemon: RunningProcess, name: str, labels: str = "") -> float:
    """The sum over all samples of a metric whose labels contain `labels`."""
    body = http_get(daemon.metrics_url + "/metrics")[1]
    lines = [line for line in body.splitlines() if re.match(rf"{name}(\{{|\s)", line) and labels in line]
    assert lines, f"no {name} at /metrics"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_lab_1_a_killed_workers_rows_come_back(
    start_daemon: StartProcess, connection: psycopg.Connection, elastic_url: str
) -> None:
    guide = {
        "OUTBOX_WORKER_ID": "w1",
        "OUTBOX_LEASE_SECONDS": "10",
        "OUTBOX_RECLAIM_INTERVAL_SECONDS": "2",
        "OUTBOX_MAX_PROCESSING_SECONDS": "60",
    }
    produce(connection, 800)
    with Proxy.to(elastic_url) as link:
        link.stall()  # so that the kill finds rows in its hands
        first = start_daemon(ELASTIC_URL=link.url(elastic_url), **guide)
        first.wait_until(lambda: counts(connection).get("processing", 0) >= 50, "rows in processing")
        first.kill()
    stuck = eventually(lambda: connection.execute(STUCK).fetchone()[0], within=20, what="stuck rows")
    second = start_daemon(**guide)
    second.wait_until(lambda: counts(connection) == {"done": 800}, "everything done", 60)
    assert stuck > 0
    assert connection.execute(STUCK).fetchone() == (0,)
    assert any(RECLAIMED.match(fact["event"]) for fact in second.facts())
    second.wait_until(lambda: metric(second, "outbox_stuck_processing_events") == 0, "the stuck gauge back at 0")
    assert metric(second, "outbox_processed_total") == 800


def test_lab_2_an_outage_schedules_retries_and_fails_nothing(
    start_daemon: StartProcess, connection: psycopg.Connection, elastic_url: str
) -> None:
    with Proxy.to(elastic_url) as link:
        daemon = start_daemon(ELASTIC_URL=link.url(elastic_url))
        produce(connection, 200)
        daemon.wait_until(lambda: counts(connection) == {"done": 200}, "the calm before")
        link.cut()
        connection.execute("truncate search_outbox_events")
        produce(connection, 1_200)
        daemon.wait_until(
            lambda: connection.execute(
                "select count(*) from search_outbox_events where error_reason = 'connect' and next_retry_at > now()"
            ).fetchone()[0],
            "rows that wait for their retry",
        )
        daemon.wait_until(lambda: metric(daemon, "outbox_retry_scheduled_total") >= 600, "retries growing", 30)
        spread, most = connection.execute(
            "select count(distinct date_trunc('milliseconds', next_retry_at)), max(attempts) from search_outbox_events"
        ).fetchone()
        assert spread > 100  # jitter: not one thundering moment
        assert most <= 8
        assert counts(connection).get("failed", 0) == 0
        assert http_get(daemon.metrics_url + "/healthz")[0] == 200
        link.heal()
        daemon.wait_until(lambda: counts(connection) == {"done": 1_200}, "everything done after the return", 60)
        assert metric(daemon, "outbox_terminal_failed_total") == 0


def test_lab_2_a_wrong_address_is_the_same_case(start_daemon: StartProcess, connection: psycopg.Connection) -> None:
    produce(connection, 20)
    daemon = start_daemon(ELASTIC_URL="http://127.0.0.1:1")
    waiting = "select count(*) from search_outbox_events where error_reason = 'connect' and next_retry_at is not null"
    daemon.wait_until(lambda: connection.execute(waiting).fetchone()[0] == 20, "all rows waiting")
    assert counts(connection) == {"pending": 20}


def test_lab_3_an_unknown_op_fails_at_once_and_alone(
    start_daemon: StartProcess, connection: psycopg.Connection
) -> None:
    produce(connection, 50)
    connection.execute(BAD_OP)
    produce(connection, 50)
    daemon = start_daemon()
    daemon.wait_until(lambda: counts(connection) == {"done": 100, "failed": 1}, "neighbours done, one failed")
    row = connection.execute(
        "select status, attempts, next_retry_at, error_reason, error, error_code, dead_reason"
        " from search_outbox_events where op = 'not-a-real-op'"
    ).fetchone()
    assert row[:4] == ("failed", 1, None, "deterministic_exception")
    assert "Unknown outbox op: 'not-a-real-op'" in row[4]
    assert row[5:] == ("OUTBOX_PAYLOAD_UNSUPPORTED", "non_retryable")
    logged = daemon.wait_for_fact("event.failed")
    assert "ValueError: Unknown outbox op: 'not-a-real-op'" in logged["error"]
    assert metric(daemon, "outbox_terminal_failed_total", 'reason="deterministic_exception"') == 1


def test_lab_4_attempts_that_are_used_up_end_in_failed(
    start_daemon: StartProcess, connection: psycopg.Connection
) -> None:
    produce(connection, 60)
    daemon = start_daemon(
        ELASTIC_URL="http://127.0.0.1:1",
        OUTBOX_MAX_ATTEMPTS="3",
        OUTBOX_BASE_BACKOFF_SECONDS="0.2",
        OUTBOX_MAX_BACKOFF_SECONDS="1.0",
    )
    daemon.wait_until(lambda: counts(connection) == {"failed": 60}, "all rows given up", 60)
    ends = connection.execute(
        "select distinct dead_reason, attempts, error_reason from search_outbox_events"
    ).fetchall()
    assert ends == [("max_attempts_exceeded", 3, "connect")]
    assert metric(daemon, "outbox_terminal_failed_total", 'reason="connect"') == 60


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
    assert uuid.UUID(daemon.facts("batch.settled")[0]["batch"])
