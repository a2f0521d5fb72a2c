"""verify: drain rate during an `outbox verify` of a million documents against without it; and its memory."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psutil
import psycopg

from bench.load import bulk_bodies, document_sql, fill, text_of
from bench.raw import send
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers
from bench.worker import Daemons, daemons, stopped

RATE = Threshold("drain rate beside verify / without", 0.80, 0.95)
MEMORY = Threshold("verify: largest size / after a fifth", 1.10, 1.05, most=True)
SIZE_EARLY = "verify: size after a fifth"
LOG = Path("build/bench/verify.log")


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, documents: int = 1_000_000, events: int = 100_000
) -> BenchmarkResult:
    """The drained events are of another type, so that the million documents do not change."""
    documents, events, rounds = (2_000, 500, 1) if smoke else (documents, events, rounds)
    result = BenchmarkResult("verify", smoke)
    result.settings = {"documents": documents, "events": events, "document_bytes": 500, "verify rate": "its default"}
    result.documents = text_of(500)
    with stack.database(by_entity=True) as url, stack.index() as index:
        stack.fresh_index(index)
        _prepare(stack, url, index, documents)
        with daemons(url, stack.elastic_url, index) as running:
            for side in ("without", "beside") * rounds:
                running.pause()
                _add(url, events)
                progress(f"{side}: {events:,} events")
                with _verifying(stack, url, index, smoke) if side == "beside" else nullcontext():
                    result.add(f"drain, {side} verify", "events/s", _drain(running, url, events))
        for _ in range(rounds):
            _whole(stack, url, index, documents, result)
    result.judge(RATE, result.divide("rate, beside / without", "drain, beside verify", "drain, without verify"))
    result.judge(MEMORY, result.divide("size, largest / after a fifth", "verify: largest size", SIZE_EARLY))
    return result


def _prepare(stack: BenchmarkServers, url: str, index: str, documents: int) -> None:
    """Done events and, by raw `_bulk`, exactly the documents that they stand for."""
    progress(f"{documents:,} documents on both sides")
    fill(url, documents, 500)
    for portion in _portions(bulk_bodies(url, 1_000), 100):
        send(stack.elastic_url, index, portion, 2)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update search_outbox_events set status = 'done', attempts = 1, processed_at = now()")
        connection.execute("vacuum analyze search_outbox_events")
        connection.execute(
            "insert into search_outbox_entity_types (entity_type, kept_by, declared_by)"
            " values ('article', 'payload', 'bench')"
        )
    stack.client().indices.refresh(index=index)


def _portions(bodies: Iterator[bytes], most: int) -> Iterator[list[bytes]]:
    portion: list[bytes] = []
    for body in bodies:
        portion.append(body)
        if len(portion) == most:
            yield portion
            portion = []
    if portion:
        yield portion


def _add(url: str, events: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("delete from search_outbox_events where entity_type = 'note'")
        connection.execute("vacuum analyze search_outbox_events")
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, payload)"
            f" select 'note', g::text, 'upsert', {document_sql(500)} from generate_series(1, %s) g".encode(),
            [events],
        )
        connection.execute("checkpoint")


def _drain(running: Daemons, url: str, events: int) -> float:
    """`wait_done` counts only events that a daemon attempted; the million was not."""
    running.resume()
    return events / running.wait_done(events)


def _command(*more: str) -> list[str]:
    return [sys.executable, "-m", "outbox", "verify", "--type", "article", "--json", *more]


def _start(stack: BenchmarkServers, url: str, index: str, *more: str) -> subprocess.Popen[bytes]:
    LOG.parent.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTBOX_", "ELASTIC_", "DATABASE_URL"))}
    given = {"DATABASE_URL": url, "ELASTIC_URL": stack.elastic_url, "ELASTIC_INDEX": index}
    with LOG.open("ab") as log:
        return subprocess.Popen(_command(*more), env={**kept, **given}, stdout=log, stderr=log)


@contextmanager
def _verifying(stack: BenchmarkServers, url: str, index: str, smoke: bool) -> Iterator[None]:
    """From its first page on; a verify that ends before the drain would measure nothing."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select coalesce(max(id), 0) from search_outbox_verifications").fetchone()
        process = _start(stack, url, index)
        with stopped(process):
            ends = time.monotonic() + 60
            while not connection.execute(
                "select 1 from search_outbox_verifications where id > %s and compared > 0", row
            ).fetchone():
                if process.poll() not in (None, 0) or time.monotonic() > ends:
                    raise RuntimeError(f"verify does not run; see {LOG}")
                time.sleep(0.02)
            yield
            if process.poll() is not None and not smoke:
                raise RuntimeError(f"verify ended ({process.returncode}) before the drain did; see {LOG}")


def _whole(stack: BenchmarkServers, url: str, index: str, documents: int, result: BenchmarkResult) -> None:
    """One full verify without a throttle: its duration, and whether its memory grows with the documents."""
    progress(f"one verify of {documents:,} documents, unthrottled")
    started = time.monotonic()
    process = _start(stack, url, index, "--rate", "0")
    sizes: list[int] = []
    with stopped(process):
        while process.poll() is None and time.monotonic() < started + 3600:
            sizes.append(psutil.Process(process.pid).memory_info().rss)
            time.sleep(0.05)
    took = time.monotonic() - started
    if process.returncode != 0:
        raise RuntimeError(f"verify found drift or failed ({process.returncode}); see {LOG}")
    early = max(sizes[: max(1, len(sizes) // 5)])
    result.add("verify as fast as it goes", "documents/s", documents / took)
    result.add(SIZE_EARLY, "MB", early / 1e6)
    result.add("verify: largest size", "MB", max(sizes) / 1e6)
