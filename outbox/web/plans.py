"""Keeps the plans that people are looking at, their ids pinned, until they are run or grow old. In memory only."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from outbox.ops.replay.plan import Plan
from outbox.policy.filter import EventFilter
from outbox.web.problems import Refused

MOST_PLANS: Final = 20
MOST_PINNED: Final = 100_000  # ids of one plan: 10 MB. More are for the command line
KEPT_SECONDS: Final = 1800.0


class Plans:
    """A plan stays after it was run, so that a second click leads to the same replay."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, Plan, EventFilter]] = OrderedDict()

    def keep(self, plan: Plan, asked: EventFilter) -> None:
        with self._lock:
            self._kept[str(plan.id)] = (self._clock(), plan, asked)
            while len(self._kept) > MOST_PLANS:
                self._kept.popitem(last=False)

    def take(self, id: str) -> tuple[Plan, EventFilter]:
        with self._lock:
            found = self._kept.get(id)
        if found is None or self._clock() - found[0] > KEPT_SECONDS:
            raise Refused(409, "This plan is too old to be run; nothing was changed. Look at what matches now.")
        return found[1], found[2]
