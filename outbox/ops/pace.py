"""Keeps a long job to so many items a second, and to fewer while production has a backlog."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from outbox.ports import Clock

LONGEST_DEBT_SECONDS: Final = 1.0  # a slow spell is not made up for by a burst
LOOK_SECONDS: Final = 1.0
BUSY_SHARE: Final = 0.2


@dataclass(slots=True)
class Pace:
    rate: float  # items a second; 0 = as fast as it goes
    busy: Callable[[], bool] = lambda: False  # whether events wait for the projector, asked once a second
    clock: Clock = time.monotonic
    rest: Callable[[float], object] = time.sleep
    busy_rate: float | None = None  # while events wait; None: a fifth of the rate
    _next: float = field(default=float("-inf"))
    _next_look: float = field(default=float("-inf"))
    _rate: float = 0.0

    def took(self, items: int) -> None:
        """After a portion: rest until its share of time is over."""
        if not self.rate and not self.busy_rate:
            return
        now = self.clock()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
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
