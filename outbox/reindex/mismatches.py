"""Keeps what differed at first sight and checks it again until that is certain. Reads neither side itself."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from outbox.policy.drift import DriftFinding, Key
from outbox.ports import Clock

WAITS_SECONDS: Final = (1.0, 1.0, 2.0, 3.0, 5.0, 5.0, 5.0)  # before each further check; after the last it is in flux
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
    checks: int = 1


@dataclass(frozen=True, slots=True)
class Recheck:
    """A later check. No finding: it is as it should be. `open`: an event of it is on its way."""

    seen: tuple[object, ...]
    finding: DriftFinding | None
    open: bool = False


@dataclass(slots=True)
class Mismatches:
    recheck: Callable[[Sequence[Mismatch]], Sequence[Recheck]]
    certain: Callable[[DriftFinding], None]
    in_flux: Callable[[Mismatch], None]
    clock: Clock = time.monotonic
    rest: Callable[[float], None] = time.sleep
    waits: Sequence[float] = field(default_factory=lambda: WAITS_SECONDS)
    arrived: Callable[[], bool] = lambda: True  # what was on its way before this call is in the index, or a row
    _kept: list[Mismatch] = field(default_factory=list)

    def add(self, doubt: Mismatch) -> None:
        self._kept.append(doubt)

    def advance(self) -> None:
        """Check again what is due; wait only while too much is kept."""
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
        return doubt.at + self.waits[doubt.checks - 1]

    def _pass(self) -> None:
        now = self.clock()
        due = [doubt for doubt in self._kept if self._due_at(doubt) <= now]
        if not due:
            return
        self._kept = [doubt for doubt in self._kept if self._due_at(doubt) > now]
        arrived = self.arrived()
        for start in range(0, len(due), A_LOOK):
            portion = due[start : start + A_LOOK]
            for doubt, check in zip(portion, self.recheck(portion), strict=True):
                self._judge(doubt, check if arrived else replace(check, open=check.finding is not None))

    def _judge(self, doubt: Mismatch, check: Recheck) -> None:
        if check.finding is None and not check.open:
            return
        if check.finding is not None and not check.open and check.seen == doubt.seen:
            self.certain(check.finding)
            return
        doubt.seen, doubt.at, doubt.checks = check.seen, self.clock(), doubt.checks + 1
        if doubt.checks <= len(self.waits):
            self._kept.append(doubt)
        elif check.finding is not None:
            self.in_flux(doubt)
