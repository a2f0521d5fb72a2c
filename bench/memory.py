"""memory: resident size after a million events against after 50,000; and the effect of large documents."""

import time
from dataclasses import replace

import psycopg

from bench.load import document_sql, fill, text_of
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers
from bench.worker import Daemons, daemons
from outbox.policy.document import BATCH_BYTES

FLAT = Threshold("resident after all / after the first part", 1.05, 1.02, most=True)
# So many documents of so many bytes. Those of 60 KB: as many as one claim takes, each just small enough to be read by
# the claim itself: 32 MB, twice.
SIZES = ((200, 1_000_000), (200, 5_000_000), (4_000, 60_000))
PROMISED = Threshold("peak / what is promised", 1.0, 0.8, most=True)
LANES = 2


def run(
    stack: BenchmarkServers,
    *,
    smoke: bool = False,
    rounds: int = 3,
    events: int = 1_000_000,
    first: int = 50_000,
    size: int = 1_000,
) -> BenchmarkResult:
    """`--set`: events, first, size."""
    events, first, rounds = (4_000, 2_000, 1) if smoke else (events, first, rounds)
    sizes = ((40, 60_000),) if smoke else SIZES
    result = BenchmarkResult("memory", smoke)
    result.documents = text_of(size)
    result.settings = {
        "events": events,
        "first": first,
        "bytes": size,
        "large": ", ".join(_name(*each) for each in sizes),
    }
    with stack.database() as url, stack.index() as index:
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            _many(stack, url, index, result, events, first, size)
            for count, each in sizes:
                _large(stack, url, index, result, count, each)
    result.judge(FLAT, "resident, all / first")
    for _, each in sizes:
        result.judge(replace(PROMISED, name=f"{_of(each)}: {PROMISED.name}"), f"{_of(each)}: peak / promised")
    return result


def _many(
    stack: BenchmarkServers, url: str, index: str, result: BenchmarkResult, events: int, first: int, size: int
) -> None:
    stack.fresh_index(index)
    with daemons(url, stack.elastic_url, index, count=2) as running:
        early = _after(running, url, first, size)
        left, late = events - first, early
        while left > 0:
            part = min(left, 250_000)
            late = _after(running, url, part, size)
            left -= part
            progress(f"{events - left:,} events, {late / 1e6:.0f} MB in two processes")
    result.add(f"resident after {first:,}", "MB", early / 1e6)
    result.add(f"resident after {events:,}", "MB", late / 1e6)
    result.add("resident, all / first", "", late / early)


def _after(running: Daemons, url: str, events: int, size: int) -> int:
    fill(url, events, size)
    running.wait_done(events)
    return running.resident_bytes()


def _large(stack: BenchmarkServers, url: str, index: str, result: BenchmarkResult, count: int, size: int) -> None:
    """A base, 4 x lanes x batch bytes, and twice the largest document."""
    stack.fresh_index(index)
    with daemons(url, stack.elastic_url, index) as running:
        fill(url, 1_000, 500)
        running.wait_done(1_000)
        base = running.resident_bytes()
        _fill_large(url, count, size)
        peak, ends = base, time.monotonic() + 600
        with psycopg.connect(url, autocommit=True) as connection:
            while _open(connection) and time.monotonic() < ends:
                peak = max(peak, running.resident_bytes())
                time.sleep(0.02)
        running.wait_done(count)
    promised = base + 4 * LANES * BATCH_BYTES + 2 * size
    result.add(f"{_of(size)}: base", "MB", base / 1e6)
    result.add(f"{_of(size)}: peak", "MB", peak / 1e6)
    result.add(f"{_of(size)}: promised", "MB", promised / 1e6)
    result.add(f"{_of(size)}: peak / promised", "", peak / promised)


def _of(size: int) -> str:
    return f"documents of {size / 1e6:.2g} MB"


def _name(count: int, size: int) -> str:
    return f"{count:,} {_of(size)}"


def _open(connection: psycopg.Connection) -> int:
    row = connection.execute(
        "select count(*) from search_outbox_events where processed_at is null and failed_at is null"
    )
    return int(row.fetchone()[0])  # type: ignore[index]


def _fill_large(url: str, count: int, size: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate search_outbox_events")
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, payload)"
            f" select 'large', g::text, 'upsert', {document_sql(size)} from generate_series(1, %s) g",
            [count],
        )
