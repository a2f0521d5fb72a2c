"""How fast each entity type goes: events finished a minute over the last hour. Reads only, and never done rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

MINUTES: Final = 60
RATE_MINUTES: Final = 5  # daemons add their counts every ten seconds: one minute alone would jump


class Minutes(Protocol):
    def minutes(self, window: timedelta) -> Sequence[tuple[str, datetime, int]]: ...


@dataclass(frozen=True, slots=True)
class Pulse:
    """`minutes`: finished in each of the last sixty, the newest last. `rate`: a second, over the last five."""

    minutes: Sequence[int]

    @property
    def last_hour(self) -> int:
        return sum(self.minutes)

    @property
    def rate(self) -> float:
        return sum(self.minutes[-RATE_MINUTES - 1 : -1]) / (RATE_MINUTES * 60)


class PulseDesk:
    def __init__(self, store: Minutes, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._now = now

    def look(self) -> Mapping[str, Pulse]:
        found: dict[str, list[int]] = {}
        this = self._now().replace(second=0, microsecond=0)
        for kind, minute, n in self._store.minutes(timedelta(minutes=MINUTES)):
            place = MINUTES - 1 - int((this - minute).total_seconds() // 60)
            if 0 <= place < MINUTES:
                found.setdefault(kind, [0] * MINUTES)[place] += n
        return {kind: Pulse(minutes) for kind, minutes in found.items()}
