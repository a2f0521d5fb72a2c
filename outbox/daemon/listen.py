"""Wakes idle lanes when a producer notifies. Polling stays the truth: a lost connection costs only latency."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from outbox.errors import OutboxError
from outbox.facts import Announce, Beat, DatabaseLost

CHECK_SECONDS: Final = 5.0  # how long a silent connection is trusted before it is asked whether it still listens


class Ear(Protocol):
    def notified(self, seconds: float) -> bool:
        """Wait for a notification; False when none came. Raises when the connection is gone."""
        ...


@dataclass(slots=True)
class Listener:
    open_ear: Callable[[], AbstractContextManager[Ear]]
    wake: Callable[[], None]
    announce: Announce

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                for _ in self._listen(stop):
                    self.wake()
            except OutboxError as error:
                self.announce(DatabaseLost("listen", error.detail))
                stop.wait(1.0)

    def _listen(self, stop: threading.Event) -> Iterator[None]:
        with self.open_ear() as ear:
            while not stop.is_set():
                self.announce(Beat("listen"))
                if ear.notified(CHECK_SECONDS):
                    yield
