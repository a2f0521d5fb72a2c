"""Owns which of several nodes serves next: in turn, those that answer; those that did not, later and later.

It sends nothing, reads no clock and takes no lock.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 10.0
# A node that is back gets copies of shards, and for some seconds becomes the primary of some.
SETTLING_SECONDS: Final = 30.0


@dataclass(slots=True)
class _Out:
    since: float
    due_at: float
    pause_seconds: float


class RoundRobin:
    def __init__(self, count: int, first: int = 0) -> None:
        self._count = count
        self._turn = first
        self._out: dict[int, _Out] = {}
        self._lately: dict[int, tuple[float, float]] = {}  # when it came back, and its pause until then

    def next(self, tried: Collection[int] = ()) -> int | None:
        """The next one in turn; one that is left out only where no other is untried, the earliest due first. None: all
        were tried. So with all of them left out each is still tried, as a single server would be."""
        for _ in range(self._count):
            place = self._turn
            self._turn = (self._turn + 1) % self._count
            if place not in self._out and place not in tried:
                return place
        rest = [place for place in self._out if place not in tried]
        return min(rest, key=lambda place: self._out[place].due_at, default=None)

    def leave_out(self, place: int, now: float) -> bool:
        """True: it was in use until now. Each failure when it was due doubles its pause; failures before that, such as
        those of other lanes' requests that were under way, do not."""
        out = self._out.get(place)
        if out is None:
            pause = self._first_pause(place, now)
            self._out[place] = _Out(now, now + pause, pause)
            return True
        if now >= out.due_at:
            out.pause_seconds = min(2 * out.pause_seconds, LONGEST_PAUSE_SECONDS)
            out.due_at = now + out.pause_seconds
        return False

    def _first_pause(self, place: int, now: float) -> float:
        """A node that comes and goes, such as one that answers and has no master, is left out for longer each time."""
        back_at, pause = self._lately.get(place, (float("-inf"), 0.0))
        return min(2 * pause, LONGEST_PAUSE_SECONDS) if now - back_at < LONGEST_PAUSE_SECONDS else FIRST_PAUSE_SECONDS

    def take_back(self, place: int, now: float) -> float | None:
        """For how many seconds it was left out; None: it was not."""
        out = self._out.pop(place, None)
        if out is None:
            return None
        self._lately[place] = now, out.pause_seconds
        return now - out.since

    def is_restless(self, now: float) -> bool:
        """One is left out, or was until a moment ago, and another one is in use."""
        if len(self._out) == self._count:
            return False
        return bool(self._out) or any(now - back_at <= SETTLING_SECONDS for back_at, _ in self._lately.values())

    def due(self, now: float) -> Sequence[int]:
        return [place for place, out in self._out.items() if out.due_at <= now]

    def next_due(self) -> float | None:
        """When the next one is to be asked again; None: none is left out."""
        return min((out.due_at for out in self._out.values()), default=None)

    def is_left_out(self, place: int) -> bool:
        return place in self._out
