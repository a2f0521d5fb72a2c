"""One yes-or-no state that does not flap: three failed checks flip it, two passed ones flip it back. Runs no check."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

BAD_FLIPS: Final = 3
GOOD_FLIPS: Final = 2
# Lanes that lose one server at the same moment report it together: that is one observation, not three.
APART_SECONDS: Final = 0.5

Clock = Callable[[], float]
WallClock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    ok: bool
    since: datetime
    detail: str

    def as_json(self) -> dict[str, Any]:
        since = self.since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"ok": self.ok, "since": since, "detail": self.detail}


class Debounced:
    """Unknown at first, which counts as bad. The first observation decides, so that a start is not delayed."""

    def __init__(self, clock: Clock, wall: WallClock, unknown: str = "not checked yet") -> None:
        self._clock = clock
        self._wall = wall
        self.known = False
        self.ok = False
        self._against = 0  # observations in a row that contradict the present state
        self._last_bad = float("-inf")
        self._since = wall()
        self._detail = unknown

    def good(self, detail: str = "") -> None:
        self._observe(True, detail)

    def bad(self, detail: str) -> None:
        now = self._clock()
        if now - self._last_bad >= APART_SECONDS:
            self._last_bad = now
            self._observe(False, detail)

    def set(self, ok: bool, detail: str) -> None:
        """For what was already decided elsewhere."""
        if ok is not self.ok or not self.known:
            self._since = self._wall()
        self.known, self.ok, self._against, self._detail = True, ok, 0, detail

    def check(self) -> ReadyCheck:
        return ReadyCheck(self.ok, self._since, self._detail)

    def _observe(self, ok: bool, detail: str) -> None:
        if self.known and ok is self.ok:
            self._against, self._detail = 0, detail
            return
        self._against += 1
        if not self.known or self._against >= (GOOD_FLIPS if ok else BAD_FLIPS):
            self.set(ok, detail)
