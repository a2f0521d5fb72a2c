"""One yes-or-no judgement that does not flap: three bad words turn it, two good ones turn it back. Asks nobody."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

BAD_TURNS: Final = 3
GOOD_TURNS: Final = 2
# Lanes that lose one server together say so at once: that is one observation, not three.
APART_SECONDS: Final = 0.5

Clock = Callable[[], float]
WallClock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of /readyz."""

    ok: bool
    since: datetime
    detail: str

    def as_json(self) -> dict[str, Any]:
        since = self.since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"ok": self.ok, "since": since, "detail": self.detail}


class Signal:
    """Unknown at first, which counts as bad; the very first word decides, so that a start is not held up."""

    def __init__(self, clock: Clock, wall: WallClock, unknown: str = "not asked yet") -> None:
        self._clock = clock
        self._wall = wall
        self._known = False
        self._ok = False
        self._against = 0  # words in a row that contradict the present judgement
        self._last_bad = float("-inf")
        self._since = wall()
        self._detail = unknown

    @property
    def ok(self) -> bool:
        return self._ok

    @property
    def known(self) -> bool:
        return self._known

    def good(self, detail: str = "") -> None:
        self._hear(True, detail)

    def bad(self, detail: str) -> None:
        now = self._clock()
        if now - self._last_bad >= APART_SECONDS:
            self._last_bad = now
            self._hear(False, detail)

    def turn(self, ok: bool, detail: str) -> None:
        """For what someone else has judged already."""
        if ok is not self._ok or not self._known:
            self._since = self._wall()
        self._known, self._ok, self._against, self._detail = True, ok, 0, detail

    def check(self) -> Check:
        return Check(self._ok, self._since, self._detail)

    def _hear(self, ok: bool, detail: str) -> None:
        if self._known and ok is self._ok:
            self._against, self._detail = 0, detail
            return
        self._against += 1
        if not self._known or self._against >= (GOOD_TURNS if ok else BAD_TURNS):
            self.turn(ok, detail)
