"""Keeps a long job to a rate, lower while events wait, and works on a few items at once. Knows nothing of the items."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event
from typing import Final, TypeVar

from outbox.ports import Clock

LONGEST_DEBT_SECONDS: Final = 1.0  # a slow spell is not made up for by a burst
CHECK_SECONDS: Final = 1.0
BUSY_SHARE: Final = 0.2


@dataclass(slots=True)
class JobPace:
    rate: float  # items per second; 0: no limit
    busy: Callable[[], bool] = lambda: False  # whether events wait for the projector, asked once a second
    clock: Clock = time.monotonic
    rest: Callable[[float], object] = time.sleep
    busy_rate: float | None = None  # while events wait; None: a fifth of the rate
    _next: float = field(default=float("-inf"))
    _next_check: float = field(default=float("-inf"))
    _rate: float = 0.0

    def took(self, items: int) -> None:
        """After a portion: rest until its share of time is over."""
        if not self.rate and not self.busy_rate:
            return
        now = self.clock()
        if now >= self._next_check:
            self._next_check = now + CHECK_SECONDS
            self._rate = self._busy_rate() if self.busy() else self.rate
        if not self._rate:
            return
        self._next = max(self._next, now - LONGEST_DEBT_SECONDS) + items / self._rate
        if self._next > now:
            self.rest(self._next - now)

    def _busy_rate(self) -> float:
        if self.busy_rate is None:
            return self.rate * BUSY_SHARE
        return min(self.busy_rate, self.rate or self.busy_rate)


T = TypeVar("T")
R = TypeVar("R")


def read_ahead(source: Iterator[T], work: Callable[[T], R], at_once: int, ending: Event) -> Generator[R, None, None]:
    """What `work` made of each item of `source`, in their order, whichever was done first; one item more is read
    meanwhile. An error comes in its place: nothing behind it is answered, though it may have been done. However this
    ends, no more is begun, and what is at work is waited for; it may check `ending` in order to be quicker."""

    def read() -> T | None:
        return None if ending.is_set() else next(source, None)

    def step(coming: Future[T | None]) -> tuple[R] | None:
        item = coming.result()
        return None if item is None or ending.is_set() else (work(item),)

    def begin() -> Future[tuple[R] | None]:
        return workers.submit(step, reader.submit(read))

    with ExitStack() as at_end:
        at_end.callback(ending.clear)
        reader = at_end.enter_context(ThreadPoolExecutor(1, "read-ahead"))
        workers = at_end.enter_context(ThreadPoolExecutor(at_once, "at-work"))
        at_end.callback(ending.set)
        begun = deque(begin() for _ in range(at_once + 1))
        while (done := begun.popleft().result()) is not None:
            begun.append(begin())  # before the caller has its turn: nobody waits for what it does
            yield done[0]
