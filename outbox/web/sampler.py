"""One look at the queue for all who watch: many open pages cost the database no more than one. It counts nothing.

While someone watches, a thread of its own looks again and again, so that no page waits; it may take a tenth of its
time, and ends when nobody asks any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from outbox.errors import DependencyDown, OutboxError

FRESH_SECONDS: Final = 2.0
# A look that takes 300 ms comes every 3 s: watching takes a tenth of one connection's time at most.
REST: Final = 10.0
WATCHED_SECONDS: Final = 30.0
# After this an old reading says more wrong than right.
USEFUL_SECONDS: Final = 300.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """`problem`: it could not be read again, so this one is old."""

    value: T
    age_seconds: float
    problem: str = ""


class Shared(Generic[T]):
    def __init__(
        self,
        look: Callable[[], T],
        fresh_seconds: float = FRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._fresh_seconds = fresh_seconds
        self._clock = clock
        self._reading = threading.Lock()
        self._last: tuple[float, T] | None = None
        self._every = fresh_seconds
        self._asked = float("-inf")
        self._problem = ""
        self._watcher: threading.Thread | None = None

    def __call__(self) -> Reading[T]:
        """Raises DependencyDown only where there is nothing useful to show instead."""
        self._asked = self._clock()
        if not self._is_fresh():
            self._read_or_wait()
        self._watch()
        return self._kept()

    def forget(self) -> None:
        """After an act of a person, who wants to see what it did: the next who asks waits for a new look."""
        if self._last is not None:
            self._last = (self._clock() - 2 * self._every, self._last[1])

    def _is_fresh(self) -> bool:
        return self._last is not None and self._age() < 2 * self._every

    def _read_or_wait(self) -> None:
        """Whoever comes first looks. The others take what is there; where nothing is, they wait for the first."""
        if not self._reading.acquire(blocking=self._last is None):
            return
        try:
            if not self._is_fresh():
                self._read()
        except DependencyDown as away:
            self._problem = away.message
            if self._last is None or self._age() > USEFUL_SECONDS:
                raise
        finally:
            self._reading.release()

    def _read(self) -> None:
        began = self._clock()
        value = self._look()
        self._every = max(self._fresh_seconds, REST * (self._clock() - began))
        self._last, self._problem = (self._clock(), value), ""

    def _watch(self) -> None:
        if self._watcher is None or not self._watcher.is_alive():
            self._watcher = threading.Thread(target=self._keep_watching, name="sampler", daemon=True)
            self._watcher.start()

    def _keep_watching(self) -> None:
        while self._clock() - self._asked < WATCHED_SECONDS:
            time.sleep(self._every)
            with self._reading:
                try:
                    self._read()
                except Exception as away:
                    # At the end of the process the pool is closed under us; nobody is left to read this then.
                    self._problem = away.message if isinstance(away, OutboxError) else "It could not be read again."

    def _kept(self) -> Reading[T]:
        assert self._last is not None
        return Reading(self._last[1], self._age(), self._problem)

    def _age(self) -> float:
        assert self._last is not None
        return self._clock() - self._last[0]
