"""herd: requests to Elasticsearch in the first minute after an outage against the last minute before it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.latency import PRODUCER
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers
from bench.worker import Daemons, daemons, stopped
from labs.proxy import Proxy

BAR = Threshold("requests in the first minute after / the last before", 1.5, 1.1, most=True)
WORST = Threshold("busiest second after / busiest second before", 3.0, 1.5, most=True)


def run(
    stack: BenchmarkServers,
    *,
    smoke: bool = False,
    rounds: int = 3,
    processes: int = 8,
    lanes: int = 8,
    rate: int = 100,
    minute: int = 60,
    outage: int = 60,
) -> BenchmarkResult:
    """Producers continue, so that there is a backlog after the outage."""
    if smoke:
        rounds, processes, lanes, minute, outage = 1, 2, 2, 2, 1
    result = BenchmarkResult("herd", smoke)
    result.settings = {"processes": processes, "lanes": lanes, "events per second": rate, "outage seconds": outage}
    result.documents = "one small one"
    settings = {"OUTBOX_CONCURRENCY": str(lanes)}
    with stack.database() as url, stack.index() as index, Proxy.to(stack.elastic_url, "elasticsearch") as proxy:
        stack.fresh_index(index)
        through = proxy.url(stack.elastic_url)
        with daemons(url, through, index, count=processes, settings=settings) as running:
            for _ in range(rounds):
                _outage(url, proxy, running, result, rate=rate, minute=minute, outage=outage)
    result.judge(BAR, result.divide("requests, after / before", "requests after", "requests before"))
    seconds = result.divide("busiest second, after / before", "busiest second after", "busiest second before")
    result.judge(WORST, seconds)
    return result


def _outage(
    url: str, proxy: Proxy, running: Daemons, result: BenchmarkResult, *, rate: int, minute: int, outage: int
) -> None:
    with _producing(url, rate, 2 * minute + outage + 60):
        _wait_for_done(url, running)
        progress(f"{minute} s before")
        before = _seconds(proxy, running, minute)
        progress(f"cut for {outage} s")
        proxy.cut()
        time.sleep(outage)
        row = _count(url, "processed_at is null and failed_at is null")
        proxy.heal()
        progress(f"{minute} s after, {row:,} events behind")
        after = _seconds(proxy, running, minute)
    result.add("backlog at the end of the outage", "events", row)
    result.add("left at the end", "events", _count(url, "processed_at is null and failed_at is null"))
    result.add("failed", "events", _count(url, "failed_at is not null"))
    result.add("requests before", "a second", sum(before) / minute)
    result.add("requests after", "a second", sum(after) / minute)
    result.add("busiest second before", "requests", max(before))
    result.add("busiest second after", "requests", max(after))


def _seconds(proxy: Proxy, running: Daemons, seconds: int) -> list[int]:
    """Requests in each second from now."""
    counts, last, start = [], proxy.counts["requests"], time.monotonic()
    for number in range(seconds):
        time.sleep(max(0.0, start + number + 1 - time.monotonic()))
        running.check_alive()
        now = proxy.counts["requests"]
        counts.append(now - last)
        last = now
    return counts


@contextmanager
def _producing(url: str, rate: int, seconds: int) -> Iterator[None]:
    command = [sys.executable, "-c", PRODUCER, url, str(rate * seconds), str(rate)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    with stopped(process):
        yield


def _wait_for_done(url: str, running: Daemons) -> None:
    """The daemons are up and working."""
    ends = time.monotonic() + 120
    while not _count(url, "processed_at is not null"):
        running.check_alive()
        if time.monotonic() > ends:
            raise TimeoutError("the daemons do not start to work")
        time.sleep(0.1)


def _count(url: str, where: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(f"select count(*) from search_outbox_events where {where}".encode()).fetchone()
    return int(row[0]) if row else 0
