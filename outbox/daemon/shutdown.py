"""Turns signals into a stop: the first drains, the second leaves at once. Does nothing in a handler but set a flag."""

import os
import signal
import threading
from types import FrameType

FORCED = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Stop:
    """One flag for the whole process, and what asked for it."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.cause = ""
        self._signals = 0

    def request(self, cause: str) -> None:
        if not self.event.is_set():
            self.cause = cause
        self.event.set()

    def install(self) -> None:
        for number in FORCED:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            # Leases are left as they are: another worker takes the rows when these run out.
            os._exit(FORCED[signal.Signals(number)])
        self.request(signal.Signals(number).name)

    def is_set(self) -> bool:
        return self.event.is_set()
