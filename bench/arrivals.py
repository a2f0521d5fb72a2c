"""What arrives in an index, by Elasticsearch's own counters: the same measurement for every tool."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

import psycopg

from bench.stack import BenchmarkServers

LIMIT_SECONDS = 300.0
PACE = 20  # changes per second, for latencies
# A poll takes CPU from what is measured; only the first and the last arrival need frequent polls.
OFTEN_SECONDS, SELDOM_SECONDS, NEARLY_ALL = 0.05, 0.25, 0.9


class DidNotFollow(Exception):
    """A tool was not up, or not through, within its limit: a result of that tool, which ends no run."""


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    rate: float
    cpu_seconds: float  # per document
    missing: int  # had not arrived within the limit


class Arrivals:
    def __init__(self, stack: BenchmarkServers, index: str) -> None:
        self._client = stack.client()
        self._index = index
        self.query = "*"  # which documents count

    def total(self) -> int:
        """Index operations so far; needs no refresh."""
        stats = self._client.indices.stats(index=self._index, metric="indexing")
        return int(stats["_all"]["primaries"]["indexing"]["index_total"])

    def count(self) -> int:
        self._client.indices.refresh(index=self._index)
        return int(self._client.count(index=self._index, q=self.query)["count"])

    def among(self, ids: list[str]) -> list[str]:
        """Which of these are there, refreshed or not."""
        reply = self._client.mget(index=self._index, ids=ids, source=False)
        return [each["_id"] for each in reply["docs"] if each.get("found")]

    def watch(
        self,
        documents: int,
        cpu: Callable[[], float],
        begin: Callable[[], object],
        limit_seconds: float = LIMIT_SECONDS,
    ) -> ArrivalRate:
        """From the first arrival, so that the start of a tool is not measured, to the last of all `documents`, or of
        those that arrived within the limit."""
        base, held = self.total(), self.count()
        begun = (time.monotonic(), 0, cpu())
        first, there, missing = begun, 0, documents
        ends = last = begun[0] + limit_seconds
        begin()
        while missing and time.monotonic() < ends:
            now, before, there = time.monotonic(), there, min(documents, self.total() - base)
            if there > before:
                last = now
            if there and not before:
                first = (now, there, cpu())
            if there == documents:
                missing, last = self._missing(held + documents), now
            if missing:
                time.sleep(SELDOM_SECONDS if 0 < there < NEARLY_ALL * documents else OFTEN_SECONDS)
        if missing:
            missing = self._missing(held + documents)
            there = min(there, documents - missing)
        if there <= first[1]:  # seen only once, as in a smoke run, or never
            first = begun
        arrived = max(1, there - first[1])
        return ArrivalRate(arrived / (last - first[0]), (cpu() - first[2]) / arrived, missing)

    def _missing(self, documents: int) -> int:
        return max(0, documents - self.count())

    @contextmanager
    def timed(self) -> Iterator["Waiting"]:
        """Polls missing ids hundreds of times per second."""
        waiting, over = Waiting(), Event()

        def poll() -> None:
            while not over.wait(0.001):
                if asked := list(waiting.since):
                    waiting.found(self.among(asked))

        thread = Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield waiting
        finally:
            over.set()
            thread.join()

    def at_pace(
        self, url: str, changes: int, change: Callable[[psycopg.Connection, int], str]
    ) -> tuple[list[float], int]:
        """As `Waiting.latencies`, of so many commits at `PACE` per second. `change` returns its document's id."""
        with self.timed() as waiting, psycopg.connect(url) as connection:
            start = time.monotonic()
            for number in range(1, changes + 1):
                id = change(connection, number)
                connection.commit()
                waiting.committed(id)
                time.sleep(max(0.0, start + number / PACE - time.monotonic()))
            return waiting.latencies()


class Waiting:
    """Documents in flight: the time of each commit, and when it was found."""

    def __init__(self) -> None:
        self.since: dict[str, float] = {}
        self._took: list[float] = []

    def committed(self, id: str) -> None:
        self.since[id] = time.monotonic()

    def found(self, ids: list[str]) -> None:
        now = time.monotonic()
        self._took += [now - self.since.pop(id) for id in ids]

    def latencies(self, patience_seconds: float = 10.0) -> tuple[list[float], int]:
        """How long each took, and how many have not arrived. Those count with the time that they waited so far."""
        ends = time.monotonic() + patience_seconds
        while self.since and time.monotonic() < ends:
            time.sleep(0.05)
        now, left = time.monotonic(), list(self.since.values())
        return self._took + [now - since for since in left], len(left)
