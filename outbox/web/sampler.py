"""One look at the queue for all who watch: many open pages cost the database no more than one. It counts nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from outbox.errors import DependencyDown

FRESH_SECONDS: Final = 2.0
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
    """Whoever comes first after the value grew old reads it anew; the others get what is there, or wait for it."""

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

    def __call__(self) -> Reading[T]:
        """Raises DependencyDown only where there is nothing useful to show instead."""
        if fresh := self._fresh():
            return fresh
        if not self._reading.acquire(blocking=self._last is None):
            return self._kept()
        try:
            return self._fresh() or self._read()
        except DependencyDown as away:
            if self._last is None or self._age() > USEFUL_SECONDS:
                raise
            return self._kept(away.message)
        finally:
            self._reading.release()

    def forget(self) -> None:
        """After an act of a person, who wants to see what it did."""
        if self._last is not None:
            self._last = (self._clock() - self._fresh_seconds, self._last[1])

    def _fresh(self) -> Reading[T] | None:
        return self._kept() if self._last is not None and self._age() < self._fresh_seconds else None

    def _read(self) -> Reading[T]:
        value = self._look()
        self._last = (self._clock(), value)
        return Reading(value, 0.0)

    def _kept(self, problem: str = "") -> Reading[T]:
        assert self._last is not None
        return Reading(self._last[1], self._age(), problem)

    def _age(self) -> float:
        assert self._last is not None
        return self._clock() - self._last[0]
