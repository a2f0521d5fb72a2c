"""Keeps a long job to so many items a second, and to a fifth of that while production has a backlog."""

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
    rest: Callable[[float], None] = time.sleep
    _next: float = field(default=float("-inf"))
    _next_look: float = field(default=float("-inf"))
    _share: float = 1.0

    def took(self, items: int) -> None:
        """After a portion: rest until its share of time is over."""
        if not self.rate:
            return
        now = self.clock()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._share = BUSY_SHARE if self.busy() else 1.0
        self._next = max(self._next, now - LONGEST_DEBT_SECONDS) + items / (self.rate * self._share)
        if self._next > now:
            self.rest(self._next - now)
