"""backfill: documents per second from the view directly into the index, against raw `_bulk` of the same documents."""

import os
import subprocess
import sys
import time

import psycopg

from bench.drain import warm_up
from bench.load import bulk_bodies, make_view, text_of
from bench.raw import send
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers

BAR = Threshold("backfill rate / raw _bulk", 0.60, 0.75)
SIZE = 500
EVENTS = (
    "insert into search_outbox_events (entity_type, entity_id, op, status)"
    " select 'article', id, 'refresh', 'done' from bench_articles"
)


def run(stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, documents: int = 200_000) -> BenchmarkResult:
    """`--set`: documents."""
    documents, rounds = (1_000, 1) if smoke else (documents, rounds)
    result = BenchmarkResult("backfill", smoke)
    result.documents = f"{text_of(SIZE)}, from a view"
    result.settings = {"documents": documents, "bytes per document": SIZE}
    with stack.database() as url, stack.index() as index, stack.index() as raw_index:
        if not smoke:
            warm_up(stack, url, raw_index, SIZE)
        make_view(url, documents, SIZE)
        bodies = _bodies(url)
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            before = _raw(stack, raw_index, bodies)
            stack.fresh_index(index)
            stack.quiet()
            ours = documents / _backfill(stack, url, index)
            stack.fresh_index(index)
            raw = 2 * documents / (before + _raw(stack, raw_index, bodies))
            result.add("raw _bulk", "docs/s", raw)
            result.add("outbox backfill", "docs/s", ours)
            result.add("ratio", "", ours / raw)
    result.judge(BAR, "ratio")
    return result


def _bodies(url: str) -> list[bytes]:
    """The events are only for the raw bodies: a backfill needs none."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate search_outbox_events")
        connection.execute(EVENTS)
        bodies = list(bulk_bodies(url, 1_000, lookup=True))
        connection.execute("truncate search_outbox_events")
    return bodies


def _raw(stack: BenchmarkServers, index: str, bodies: list[bytes]) -> float:
    stack.fresh_index(index)
    stack.quiet()
    took = send(stack.elastic_url, index, bodies, 2)
    stack.fresh_index(index)
    return took


def _backfill(stack: BenchmarkServers, url: str, index: str) -> float:
    """The whole command, including its start."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTBOX_", "ELASTIC_", "DATABASE_URL"))}
    environ = {**kept, "DATABASE_URL": url, "ELASTIC_URL": stack.elastic_url, "ELASTIC_INDEX": index}
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "outbox", "backfill"], env=environ, check=True, capture_output=True)
    return time.monotonic() - began
