"""console: p95 of every page and reading API call, with five million rows. It measures the console's own process."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import urllib3

from bench.console_rows import FINGERPRINTS, fill_rows
from bench.result import BenchmarkResult, Threshold, percentile, progress
from bench.stack import BenchmarkServers
from bench.worker import stopped
from outbox.embedded.process import free_port
from outbox.web.application import API, PAGES
from outbox.web.routing import API_PREFIX

P95 = Threshold("p95 of the slowest page or call, ms", 300.0, 100.0, most=True)
LOG = Path("build/bench/console.log")
LIMIT_SECONDS, START_SECONDS = 10.0, 60.0
# Typical queries of these routes, in addition to the plain route. Other routes are called without a query.
QUERIES: dict[str, tuple[dict[str, str], ...]] = {
    "/ops/queue/failures/list": ({}, {"fingerprint": FINGERPRINTS[0]}, {"entity_type": "article"}),
    "/ops/queue/events": ({}, {"status": "done"}, {"entity_type": "article", "status": "failed"}),
    "/ops/queue/replay": ({}, {"fingerprint": FINGERPRINTS[0]}),
    "/api/v1/events": ({}, {"status": "done", "limit": "500"}, {"entity_type": "article"}),
    "/api/v1/failed": ({}, {"fingerprint": FINGERPRINTS[0]}, {"limit": "500"}),
    "/api/v1/failed/groups": ({}, {"entity_type": "article"}),
    "/api/v1/failed/preview": ({}, {"fingerprint": FINGERPRINTS[0]}, {"page": "100"}),
}


def run(
    stack: BenchmarkServers,
    *,
    smoke: bool = False,
    rounds: int = 30,
    done: int = 4_900_000,
    failed: int = 50_000,
    pending: int = 50_000,
) -> BenchmarkResult:
    done, failed, pending, rounds = (3_000, 400, 100, 2) if smoke else (done, failed, pending, rounds)
    result = BenchmarkResult("console", smoke)
    result.settings = {"done": done, "failed": failed, "groups": len(FINGERPRINTS), "open": pending, "calls": rounds}
    with stack.database() as url, stack.index() as index:
        stack.fresh_index(index)
        fill_rows(url, done, failed, pending)
        with _console(url, stack.elastic_url, index) as address:
            _replay(address, 20 if smoke else 1_000)
            took = _walk(address, _paths(url), rounds)
    for path, seconds in sorted(took.items(), key=lambda found: -percentile(found[1], 0.95)):
        result.add(path, "ms p95", percentile(seconds, 0.95) * 1000)
    result.add("p50 of all calls", "ms", statistics.median([s for each in took.values() for s in each]) * 1000)
    result.judge(P95, max(percentile(seconds, 0.95) for seconds in took.values()) * 1000)
    return result


@contextmanager
def _console(url: str, elastic_url: str, index: str) -> Iterator[str]:
    """`outbox console`, on a free port."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTBOX_", "ELASTIC_", "DATABASE_URL"))}
    port = str(free_port())
    given = {"DATABASE_URL": url, "ELASTIC_URL": elastic_url, "ELASTIC_INDEX": index, "OUTBOX_CONSOLE_PORT": port}
    command = [sys.executable, "-m", "outbox", "console"]
    with LOG.open("wb") as log:
        process = subprocess.Popen(command, env={**kept, **given}, stdout=log, stderr=log)
        with stopped(process):
            yield _answers(process, f"http://127.0.0.1:{port}")


def _answers(process: subprocess.Popen[bytes], address: str) -> str:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        try:
            urllib3.request("GET", f"{address}/healthz", timeout=2, retries=False)
        except urllib3.exceptions.HTTPError:
            time.sleep(0.1)
        else:
            return address
    raise RuntimeError(f"the console does not answer; see {LOG}")


def _replay(address: str, events: int) -> None:
    """One replay through the API, so that its page, audit rows and items exist."""
    body = {"by": "bench", "reason": "benchmark data", "limit": events, "rate": 100_000}
    reply = urllib3.request("POST", f"{address}{API_PREFIX}/failed/replay", json=body, timeout=60)
    if reply.status != 202:
        raise RuntimeError(f"no replay: {reply.status} {reply.data[:300]!r}")


STATES = {"failed": "failed_at is not null", "done": "status = 'done'"}


def _paths(url: str) -> dict[str, str]:
    """Label -> path of every GET route of the route table, with ids of existing rows."""
    routes = [route.path for route in PAGES if route.method == "GET"]
    routes += [f"{API_PREFIX}{route.path}" for route in API if route.method == "GET"]
    with psycopg.connect(url, autocommit=True) as connection:
        events = {
            state: _one(connection, f"select id from search_outbox_events where {where} limit 1")
            for state, where in STATES.items()
        }
        replays = {"replayed": _one(connection, "select id from search_outbox_replays limit 1")}
    paths = {}
    for route in routes:
        for status, id in (replays if "/replays/" in route else events).items() if "{id}" in route else [("", "")]:
            for query in QUERIES.get(route, ({},)):
                more = f"?{urlencode(query)}" if query else ""
                paths[f"{route}{more} {status}".strip()] = route.replace("{id}", id) + more
    return paths


def _one(connection: psycopg.Connection, query: str) -> str:
    row = connection.execute(query.encode()).fetchone()
    if row is None:
        raise RuntimeError(f"no row: {query}")
    return str(row[0])


def _walk(address: str, paths: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """All routes in turn, repeatedly: between two calls of one page its cache expires, as for real users."""
    pool = urllib3.PoolManager(num_pools=1, maxsize=1)
    took: dict[str, list[float]] = {name: [] for name in paths}
    for number in range(rounds + 1):
        progress(f"round {number} of {rounds} over {len(paths)} pages and calls")
        for name, path in paths.items():
            seconds = _ask(pool, f"{address}{path}")
            if number:  # the first round is a warm-up
                took[name].append(seconds)
    return took


def _ask(pool: urllib3.PoolManager, url: str) -> float:
    """Seconds of one reply. Exports are limited per minute and person: that wait is not counted."""
    while True:
        started = time.monotonic()
        reply = pool.request("GET", url, redirect=False, timeout=LIMIT_SECONDS, retries=False)
        seconds = time.monotonic() - started
        if reply.status == 429:
            time.sleep(float(reply.headers["Retry-After"]))
        elif reply.status >= 400:
            raise RuntimeError(f"{url}: {reply.status} {reply.data[:300]!r}")
        else:
            return seconds
