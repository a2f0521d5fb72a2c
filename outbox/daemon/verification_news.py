"""Announces the newest verification, which runs in another process, so that the daemon's metrics show it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from outbox.facts import Announce, IndexVerified
from outbox.ports import Clock

INTERVAL_SECONDS: Final = 10.0


class Result(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def compared(self) -> int: ...
    @property
    def drift(self) -> Mapping[str, int]: ...
    @property
    def finished_at(self) -> float: ...
    @property
    def duration_seconds(self) -> float: ...


@dataclass(slots=True)
class VerificationNews:
    last: Callable[[], Result | None]
    announce: Announce
    clock: Clock
    _next: float = float("-inf")
    _told: int = 0

    def tend(self) -> None:
        """A small query every ten seconds; a result is told once a process."""
        if self.clock() < self._next:
            return
        self._next = self.clock() + INTERVAL_SECONDS
        found = self.last()
        if found is not None and found.id != self._told:
            self._told = found.id
            self.announce(IndexVerified(found.drift, found.compared, found.duration_seconds, found.finished_at))
