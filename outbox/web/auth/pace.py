"""Owns how often one client may do costly things: a token bucket a key, in memory. It knows no HTTP."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_MOST_KEYS = 10_000  # a flood of addresses forgets the oldest instead of growing


@dataclass(frozen=True, slots=True)
class Allowance:
    """`burst` at once, refilled over a minute."""

    burst: int


GUESS = Allowance(10)  # wrong tokens, at the login and as bearer alike
ACT = Allowance(120)
EXPORT = Allowance(20)


class Pace:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[tuple[Allowance, str], tuple[float, float]] = OrderedDict()

    def take(self, allowance: Allowance, key: str) -> float:
        """0 when it may go on, else the seconds to wait."""
        now = self._clock()
        with self._lock:
            left, at = self._left.pop((allowance, key), (float(allowance.burst), now))
            left = min(float(allowance.burst), left + (now - at) * allowance.burst / 60)
            wait = 0.0 if left >= 1 else (1 - left) * 60 / allowance.burst
            self._left[(allowance, key)] = (left if wait else left - 1, now)
            while len(self._left) > _MOST_KEYS:
                self._left.popitem(last=False)
        return wait

    def give_back(self, allowance: Allowance, key: str) -> None:
        """For what counts only where it turns out to be wrong: taken first, so that many at once count too."""
        with self._lock:
            if found := self._left.get((allowance, key)):
                self._left[(allowance, key)] = (found[0] + 1, found[1])
