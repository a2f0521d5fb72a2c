"""pinned: drain rate, and claim p50 at a slow pace, while another session holds an old snapshot, against without it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import psycopg

from bench.drain import warm_up
from bench.load import fill, text_of
from bench.result import BenchmarkResult, Threshold, percentile, progress
from bench.stack import BenchmarkServers
from bench.worker import claim_seconds, daemons, log_size

RATE = Threshold("drain rate, pinned / unpinned", 0.80, 0.95)
CLAIM = Threshold("claim speed at 100 events/s, pinned / unpinned", 0.80, 0.95)
PACE, BYTES = 100, 200


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, events: int = 400_000, paced: int = 2_000
) -> BenchmarkResult:
    events, paced, rounds = (2_000, 50, 1) if smoke else (events, paced, rounds)
    result = BenchmarkResult("pinned", smoke)
    result.settings = {"events": events, "paced events": paced, "pace": PACE}
    result.documents = f"{text_of(BYTES)}; one small one for the claims"
    chatty = {"OUTBOX_LOG_LEVEL": "info"}
    with (
        stack.database() as url,
        stack.index() as index,
        daemons(url, stack.elastic_url, index, settings=chatty, paused=True) as running,
    ):
        if not smoke:
            warm_up(stack, url, index, BYTES)
        for side in ("unpinned", "pinned") * rounds:
            running.pause()
            stack.fresh_index(index)
            fill(url, events, BYTES)
            stack.quiet()
            progress(f"{side}: {events:,} events")
            with snapshot(url) if side == "pinned" else nullcontext():
                running.resume()
                result.add(f"drain, {side}", "events/s", events / running.wait_done(events))
                stack.quiet()  # merges of the drain would slow down the claims
                before = log_size()
                _trickle(url, paced)
                result.add(f"claim p50, {side}", "ms", percentile(claim_seconds(before), 0.5) * 1000)
    result.judge(RATE, result.divide("rate, pinned / unpinned", "drain, pinned", "drain, unpinned"))
    result.judge(CLAIM, result.divide("claim speed, pinned / unpinned", "claim p50, unpinned", "claim p50, pinned"))
    return result


@contextmanager
def snapshot(url: str) -> Iterator[None]:
    """A session that keeps all row versions from now on, as a long report does."""
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select count(*) from search_outbox_migrations")
        yield
        connection.rollback()


def _trickle(url: str, events: int) -> None:
    done = threading.Event()
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(events):
            connection.execute(
                "insert into search_outbox_events (entity_type, entity_id, op, payload)"
                " values ('slow', %s, 'upsert', '{\"n\": 1}')",
                [str(number)],
            )
            done.wait(1 / PACE)
    time.sleep(1.0)
