"""The wall clock is set back by hours, before a projector starts and while it runs: it works on and counts right.

The whole process is fooled by libfaketime; PostgreSQL and Elasticsearch keep the right time.
"""

import time
from datetime import datetime
from pathlib import Path

import pytest

from labs.faketime import library
from tests.fixtures.metrics import metric
from tests.fixtures.processes import ROOT, RunningProcess, StartProcess, http_get
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import EventTable

HOURS = 3
LEASE_SECONDS = 3


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """The file by which the projector's wall clock is set."""
    file = tmp_path / "clock"
    file.write_text("+0s\n")
    return file


def fooled(clock: Path) -> dict[str, str | None]:
    preload = library()
    assert preload is not None, "libfaketime is missing: scripts/test installs it (apt-get install libfaketime)"
    return {
        "LD_PRELOAD": str(preload),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": str(ROOT),
        "OUTBOX_LEASE_SECONDS": str(LEASE_SECONDS),
        "OUTBOX_BASE_BACKOFF_SECONDS": "0.2",
        "OUTBOX_MAX_BACKOFF_SECONDS": "1",
    }


def set_back(clock: Path) -> None:
    clock.write_text(f"-{HOURS}h\n")


def off_by_hours(fact: dict[str, str]) -> int:
    return round((datetime.fromisoformat(fact["ts"]).timestamp() - time.time()) / 3600)


def all_done(daemon: RunningProcess, queue: EventTable, rows: int) -> None:
    daemon.wait_until(lambda: queue.counts() == {"done": rows}, f"{rows} events done")


def metrics_are_true(daemon: RunningProcess, rows: int, retried: int = 0) -> None:
    """Every event counted once, no age below zero and none of hours: the clock's jump is in no figure."""
    daemon.wait_until(lambda: metric(daemon, "outbox_processed_total") == rows, "all of them counted")
    # A latency is of events that were done at their first attempt.
    assert metric(daemon, "outbox_event_latency_seconds_count") == rows - retried
    assert 0 <= metric(daemon, "outbox_event_latency_seconds_sum") < rows * 1800
    assert metric(daemon, "outbox_lease_lost_total") == 0


def test_set_back_while_it_runs_nothing_waits_for_the_old_time(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str, clock: Path
) -> None:
    """Set back while a batch is in flight, then while events wait for their retry."""
    with proxy_to(elastic_url) as (proxy, url):
        daemon = start_daemon(ELASTIC_URL=url, **fooled(clock))
        queue.produce_many(50)
        all_done(daemon, queue, 50)
        assert {off_by_hours(fact) for fact in daemon.facts("batch.claimed")} == {0}

        proxy.hold(b"_bulk")
        queue.produce_many(50, entity_type="author")
        daemon.wait_until(lambda: queue.counts().get("processing") == 50, "a batch in flight")
        leased = "select lease_until from search_outbox_leases"
        until = queue.value(leased)
        set_back(clock)
        daemon.wait_until(lambda: queue.value(leased) > until, "the next heartbeat")
        proxy.heal()
        all_done(daemon, queue, 100)

        proxy.cut()
        queue.produce_many(50, entity_type="block")
        daemon.wait_for_fact("event.retry_scheduled")
        assert http_get(daemon.metrics_url + "/healthz")[0] == 200
        proxy.heal()
        all_done(daemon, queue, 150)

        queue.produce_many(50, entity_type="page")
        all_done(daemon, queue, 200)
    assert off_by_hours(daemon.facts("batch.claimed")[-1]) == -HOURS, "its clock was set back, or this shows nothing"
    assert http_get(daemon.metrics_url + "/healthz")[0] == 200
    daemon.wait_for_http("/readyz")
    metrics_are_true(daemon, 200, retried=50)
    assert daemon.terminate() == 0
    assert queue.leases() == 0


def test_set_back_before_it_starts_events_from_its_future_are_projected(
    queue: EventTable, start_daemon: StartProcess, clock: Path
) -> None:
    """Events, and the traces of the worker before it, are hours ahead of its clock."""
    first = start_daemon(OUTBOX_WORKER_ID="w1", **fooled(clock))
    queue.produce_many(50)
    all_done(first, queue, 50)
    first.kill()
    set_back(clock)
    queue.produce_many(50, entity_type="author")
    second = start_daemon(OUTBOX_WORKER_ID="w1", **fooled(clock))
    all_done(second, queue, 100)
    assert off_by_hours(second.wait_for_fact("worker.started")) == -HOURS
    second.wait_for_http("/readyz")
    assert http_get(second.metrics_url + "/healthz")[0] == 200
    metrics_are_true(second, 50)
    assert second.terminate() == 0
