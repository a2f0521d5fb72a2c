"""latency: commit to done at 100 events per second, against one direct index request in the same run."""

import subprocess
import sys
import time
from collections.abc import Sequence

import psycopg
import urllib3

from bench.drain import warm_up
from bench.result import BenchmarkResult, Threshold, percentile, progress
from bench.stack import BenchmarkServers
from bench.worker import daemons

P50 = Threshold("p50 / direct index request p50", 5.0, 3.0, most=True)
P99 = Threshold("p99 / direct index request p99", 4.0, 2.5, most=True)
WARM_BYTES = 500
# Inserted by a separate process: one transaction per event. It prints when each commit was answered, by the wall clock
# of this machine, which is PostgreSQL's too: before that nobody can rely on the event.
PRODUCER = """
import sys, time, psycopg
url, events, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
committed = []
with psycopg.connect(url, autocommit=True) as c:
    start = time.monotonic()
    for n in range(events):
        c.execute("insert into search_outbox_events (entity_type, entity_id, op, payload) "
                  "values ('a', %s, 'upsert', %s)",
                  [str(n), '{"title": "An article", "body": "some words of a body", "n": 1}'])
        committed.append(time.time())
        time.sleep(max(0.0, start + (n + 1) / rate - time.monotonic()))
print(*committed)
"""


def run(
    stack: BenchmarkServers,
    *,
    smoke: bool = False,
    rounds: int = 3,
    events: int = 20_000,
    rate: int = 100,
    listen: bool = True,
) -> BenchmarkResult:
    events, rounds = (100, 1) if smoke else (events, rounds)
    result = BenchmarkResult("latency", smoke)
    result.settings = {"events": events, "rate": rate, "listen": listen}
    result.documents = "one small one"
    settings = {"OUTBOX_LISTEN": "true" if listen else "false"}
    with stack.database(notify=listen) as url, stack.index() as index, stack.index() as direct_index:
        if not smoke:  # warm-up: the first direct requests would include Java's compilation
            warm_up(stack, url, direct_index, WARM_BYTES)
            _empty(url)
            stack.quiet()
        stack.fresh_index(index)
        stack.fresh_index(direct_index)
        with daemons(url, stack.elastic_url, index, settings=settings) as running:
            for _ in range(rounds):
                direct = _direct(stack, direct_index, 100 if smoke else 1_000)
                progress(f"{events // rounds:,} events at {rate} per second")
                _empty(url)
                command = [sys.executable, "-c", PRODUCER, url, str(events // rounds), str(rate)]
                produced = subprocess.run(command, check=True, timeout=900, capture_output=True, text=True)
                running.wait_done(events // rounds)
                ours = _latencies(url, [float(at) for at in produced.stdout.split()])
                for share, name in ((0.5, "p50"), (0.99, "p99")):
                    result.add(f"direct {name}", "ms", percentile(direct, share) * 1000)
                    result.add(f"outbox {name}", "ms", percentile(ours, share) * 1000)
                    result.add(f"{name} / direct", "", percentile(ours, share) / percentile(direct, share))
    result.judge(P50, "p50 / direct")
    result.judge(P99, "p99 / direct")
    return result


def _empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate search_outbox_events")


def _latencies(url: str, committed: Sequence[float]) -> list[float]:
    """Until settled, which is a little after Elasticsearch's reply: the stricter figure."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select entity_id::int, extract(epoch from processed_at)::float8 from search_outbox_events"
        )
        return [at - committed[number] for number, at in rows.fetchall()]


def _direct(stack: BenchmarkServers, index: str, requests: int) -> list[float]:
    pool = urllib3.PoolManager(num_pools=1, maxsize=1)
    body = b'{"title": "An article", "body": "some words of a body", "n": 1}'
    took = []
    for number in range(requests):
        started = time.monotonic()
        url = f"{stack.elastic_url}/{index}/_doc/{number}?version={number + 1}&version_type=external_gte"
        reply = pool.request("PUT", url, body=body, headers={"content-type": "application/json"})
        took.append(time.monotonic() - started)
        if reply.status >= 300:
            raise RuntimeError(reply.data[:200])
    return took
