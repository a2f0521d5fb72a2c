"""Keeps a long job to so many items a second, with short rests. Counts nothing else."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from outbox.ports import Clock

LONGEST_DEBT_SECONDS = 1.0  # a slow spell is not made up for by a burst


@dataclass(slots=True)
class Pace:
    rate: float  # items a second; 0 = as fast as it goes
    clock: Clock = time.monotonic
    rest: Callable[[float], None] = time.sleep
    _next: float = field(default=0.0)

    def took(self, items: int) -> None:
        """After a portion: rest until its share of time is over."""
        if not self.rate:
            return
        now = self.clock()
        self._next = max(self._next, now - LONGEST_DEBT_SECONDS) + items / self.rate
        if self._next > now:
            self.rest(self._next - now)
