"""Turns signals into a stop: the first drains, the second leaves at once. Takes no lock in a handler."""

import os
import signal
import threading
from queue import SimpleQueue
from types import FrameType

FORCED = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Stop:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.cause = ""
        self._count = 0
        self._received: SimpleQueue[int] = SimpleQueue()

    def request(self, cause: str) -> None:
        if not self.event.is_set():
            self.cause = cause
        self.event.set()

    def install(self) -> None:
        threading.Thread(target=self._follow, name="signals", daemon=True).start()
        for number in FORCED:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """A handler runs between any two steps of the main thread, also while that holds the lock of `event` inside of
        `event.wait`: setting it here would wait for that lock for ever. `put` of this queue may be called anywhere."""
        self._count += 1
        if self._count > 1:
            # Leases are left as they are: another worker takes the rows when these run out.
            os._exit(FORCED[signal.Signals(number)])
        self._received.put(number)

    def _follow(self) -> None:
        self.request(signal.Signals(self._received.get()).name)

    def is_set(self) -> bool:
        return self.event.is_set()
