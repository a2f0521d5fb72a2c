"""Owns the quiet windows: now and then the other lanes hold their next act, so that a long command has a chance."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_SECONDS = 60.0
LULL_SECONDS = 90.0  # until what was under way is over: on a busy machine Elasticsearch takes 60 s to be back


class Quiet:
    """Lanes do their acts in `act()`. In `window()` none begins, until it is left or the time is up."""

    def __init__(self, seconds: float = QUIET_SECONDS) -> None:
        self._length = seconds
        self._changed = threading.Condition()
        self._until = 0.0
        self._busy = 0
        self.windows: list[float] = []  # how many seconds each lasted

    @contextmanager
    def act(self) -> Iterator[None]:
        with self._changed:
            while (left := self._until - time.monotonic()) > 0:
                self._changed.wait(min(left, 1.0))
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextmanager
    def window(self) -> Iterator[None]:
        with self._changed:
            self._until = math.inf
            self._changed.wait_for(lambda: not self._busy, LULL_SECONDS)
            began = time.monotonic()
            self._until = began + self._length
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.windows.append(round(min(time.monotonic(), self._until) - began, 1))
                self._until = 0.0
                self._changed.notify_all()
