"""drain: events a second from all pending to all done, full semantics on, against raw `_bulk` of the same documents."""

import time

from bench.account import Account
from bench.load import bulk_bodies, fill
from bench.raw import send
from bench.result import Bar, Result, progress
from bench.stack import Stack
from bench.worker import daemons

BAR = Bar("drain rate / raw _bulk", 0.50, 0.70)
WARM_DOCUMENTS = 100_000  # a fresh JVM does half its speed before these
SETTLED_IN_SECONDS = 31  # in its first half minute a daemon checks every upsert against newer deletes


def run(
    stack: Stack,
    *,
    smoke: bool = False,
    rounds: int = 3,
    events: int = 200_000,
    size: int = 500,
    lanes: int = 2,
    processes: int = 1,
    batch: int = 500,
    lookup: bool = False,
) -> Result:
    events, rounds = (2_000, 1) if smoke else (events, rounds)
    result = Result("drain", smoke)
    shape = {"events": events, "document_bytes": size, "lookup": lookup}
    result.settings = {**shape, "lanes": lanes, "processes": processes, "batch": batch}
    settings = {"OUTBOX_CONCURRENCY": str(lanes), "OUTBOX_BATCH_SIZE": str(batch)}
    with stack.database() as url, stack.index() as index, stack.index() as raw_index:
        if not smoke:
            _warm(stack, url, raw_index, size, batch, lanes)
        stack.fresh_index(index)
        with daemons(url, stack.elastic_url, index, count=processes, settings=settings) as running:
            running.pause()
            if not smoke:
                time.sleep(SETTLED_IN_SECONDS)
            for number in range(rounds):
                progress(f"round {number + 1} of {rounds}")
                fill(url, events, size)
                bodies = list(bulk_bodies(url, batch))
                stack.fresh_index(raw_index)
                raw = events / send(stack.elastic_url, raw_index, bodies, lanes * processes)
                del bodies
                stack.fresh_index(index)
                account = Account(stack, url, running)
                account.open()
                running.resume()
                ours = events / running.wait_done(events)
                account.close(result, events)
                running.pause()
                result.add("raw _bulk", "docs/s", raw)
                result.add("outbox", "events/s", ours)
                result.add("ratio", "", ours / raw)
    result.judge(BAR, next(s for s in result.series if s.name == "ratio").median)
    return result


def _warm(stack: Stack, url: str, index: str, size: int, batch: int, lanes: int) -> None:
    progress("warming Elasticsearch")
    fill(url, WARM_DOCUMENTS, size)
    bodies = list(bulk_bodies(url, batch))
    for _ in range(2):
        stack.fresh_index(index)
        send(stack.elastic_url, index, bodies, lanes)
