"""How long to wait: before an event's next try, after a batch that failed as a whole, between probes of a sink that
does not answer. Computes only; randomness is handed in."""

from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

PROBE_SECONDS: Final = 5.0  # "probes at most 5 s apart"
MOST_PACE_SECONDS: Final = 10.0
LONGEST_ASKED_SECONDS: Final = 43_200.0  # nobody is kept waiting for longer than half a day by what a header says


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float:
    """What a server asks for with `Retry-After`: seconds, or a date where it is known what `now` is. Nonsense counts as
    nothing."""
    try:
        if value is not None and value.strip().isdecimal():
            wait = float(value)
        elif value is not None and now is not None:
            wait = (parsedate_to_datetime(value) - now).total_seconds()
        else:
            return 0.0
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(wait, 0.0), LONGEST_ASKED_SECONDS)


@dataclass(frozen=True, slots=True)
class Backoff:
    base_seconds: float
    cap_seconds: float

    def ceiling(self, attempts: int) -> float:
        """The undithered curve. The exponent is held down, so that attempt 5,000 does not overflow a float."""
        return min(self.cap_seconds, self.base_seconds * 2.0 ** min(max(attempts, 1) - 1, 60))

    def delay(self, attempts: int, random: float) -> float:
        """Half of it certain, half by chance: full jitter let 5 % of rows fail after a two-minute outage (measured)."""
        ceiling = self.ceiling(attempts)
        return ceiling / 2 + random * ceiling / 2


@dataclass(slots=True)
class LanePace:
    """A lane's own wait after batches that failed as a whole: doubling, jittered, gone at the first success."""

    base_seconds: float
    cap_seconds: float
    failures: int = 0

    def failed(self, random: float) -> float:
        self.failures += 1
        return Backoff(self.base_seconds, min(MOST_PACE_SECONDS, self.cap_seconds)).delay(self.failures, random)

    def succeeded(self) -> None:
        self.failures = 0


def probe_delay(tries: int, random: float) -> float:
    """0.5, 1, 2, 4, 5, 5 ... seconds between probes, jittered downwards so that the bound holds."""
    ceiling = min(PROBE_SECONDS, 0.5 * 2.0 ** min(tries, 10))
    return ceiling * (0.75 + 0.25 * random)
