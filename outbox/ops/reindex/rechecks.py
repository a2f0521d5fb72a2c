"""Keeps what looked wrong once until a second look says the same: rows that change meanwhile are not drift.

A verdict counts when two looks, a pause apart, saw the same on both sides and no event of the entity was open at the
later one. What never comes to rest is `in flux`. Reads nothing itself: the look is handed in.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from outbox.policy.drift import DriftFinding, Key
from outbox.ports import Clock

WAITS_SECONDS: Final = (1.0, 1.0, 2.0, 3.0, 5.0, 5.0, 5.0)  # before each further look; after the last it is in flux
MOST: Final = 20_000  # kept at once: beyond it the walk waits for verdicts
A_LOOK: Final = 500


@dataclass(slots=True)
class Mismatch:
    """One document of one index, as it was seen last."""

    index: str
    id: str
    key: Key
    seen: tuple[object, ...]
    at: float
    extra: bool = False  # a second document under the same id, with this routing
    routing: str | None = None
    looks: int = 1


@dataclass(frozen=True, slots=True)
class Recheck:
    """A later look. No finding: it is as it should be. `open`: an event of it is on its way."""

    seen: tuple[object, ...]
    finding: DriftFinding | None
    open: bool = False


@dataclass(slots=True)
class Mismatches:
    look: Callable[[Sequence[Mismatch]], Sequence[Recheck]]
    certain: Callable[[DriftFinding], None]
    in_flux: Callable[[Mismatch], None]
    clock: Clock = time.monotonic
    rest: Callable[[float], None] = time.sleep
    _kept: list[Mismatch] = field(default_factory=list)

    def add(self, doubt: Mismatch) -> None:
        self._kept.append(doubt)

    def advance(self) -> None:
        """Look again at what is due; wait only while too much is kept."""
        self._pass()
        while len(self._kept) > MOST:
            self._wait()
            self._pass()

    def drain(self) -> None:
        self._pass()
        while self._kept:
            self._wait()
            self._pass()

    def _wait(self) -> None:
        due = min(self._due_at(doubt) for doubt in self._kept)
        self.rest(max(0.02, due - self.clock()))

    def _due_at(self, doubt: Mismatch) -> float:
        return doubt.at + WAITS_SECONDS[doubt.looks - 1]

    def _pass(self) -> None:
        now = self.clock()
        due = [doubt for doubt in self._kept if self._due_at(doubt) <= now]
        if not due:
            return
        self._kept = [doubt for doubt in self._kept if self._due_at(doubt) > now]
        for start in range(0, len(due), A_LOOK):
            portion = due[start : start + A_LOOK]
            for doubt, look in zip(portion, self.look(portion), strict=True):
                self._judge(doubt, look)

    def _judge(self, doubt: Mismatch, look: Recheck) -> None:
        if look.finding is None and not look.open:
            return
        if look.finding is not None and not look.open and look.seen == doubt.seen:
            self.certain(look.finding)
            return
        doubt.seen, doubt.at, doubt.looks = look.seen, self.clock(), doubt.looks + 1
        if doubt.looks <= len(WAITS_SECONDS):
            self._kept.append(doubt)
        elif look.finding is not None:
            self.in_flux(doubt)
