"""What arrives in an index, by Elasticsearch's own counters: the same measurement for every tool."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from bench.stack import BenchmarkServers

LIMIT_SECONDS = 900.0
# A poll takes CPU from what is measured; only the first and the last arrival need frequent polls.
OFTEN_SECONDS, SELDOM_SECONDS, NEARLY_ALL = 0.05, 0.25, 0.9


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    rate: float
    cpu_seconds: float  # per document


class Arrivals:
    def __init__(self, stack: BenchmarkServers, index: str) -> None:
        self._client = stack.client()
        self._index = index

    def total(self) -> int:
        """Index operations so far; needs no refresh."""
        stats = self._client.indices.stats(index=self._index, metric="indexing")
        return int(stats["_all"]["primaries"]["indexing"]["index_total"])

    def count(self) -> int:
        self._client.indices.refresh(index=self._index)
        return int(self._client.count(index=self._index)["count"])

    def watch(self, documents: int, cpu: Callable[[], float], begin: Callable[[], object]) -> ArrivalRate:
        """From the first arrival, so that the start of a tool is not measured, to the last of all `documents`."""
        base, held = self.total(), self.count()
        first: tuple[float, int, float] | None = None
        begin()
        ends = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < ends:
            now, there = time.monotonic(), self.total() - base
            if first is None and there:
                first = (now, there, cpu())
            if first and there >= documents and self.count() >= held + documents:
                rest, spent = documents - first[1], cpu()
                if rest <= 0:  # so short that it was seen only once: a smoke run
                    return ArrivalRate(float(documents), spent / documents)
                return ArrivalRate(rest / (now - first[0]), (spent - first[2]) / rest)
            time.sleep(SELDOM_SECONDS if first and there < NEARLY_ALL * documents else OFTEN_SECONDS)
        raise TimeoutError(f"{self.total() - base} of {documents} arrived within {LIMIT_SECONDS:.0f} s")

    @contextmanager
    def timed(self) -> Iterator["Waiting"]:
        """Polls missing ids by `_mget` hundreds of times per second: it finds what is not refreshed yet."""
        waiting, over = Waiting(), Event()

        def poll() -> None:
            while not over.wait(0.001):
                if asked := list(waiting.since):
                    reply = self._client.mget(index=self._index, ids=asked, source=False)
                    waiting.found([each["_id"] for each in reply["docs"] if each.get("found")])

        thread = Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield waiting
        finally:
            over.set()
            thread.join()


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
