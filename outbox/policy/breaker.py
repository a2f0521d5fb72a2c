"""How long to keep away from a sink that does not answer. Counts and computes; waiting is the lane's."""

from dataclasses import dataclass
from typing import Final

PROBE_SECONDS: Final = 5.0  # "probes at most 5 s apart"
MOST_PACE_SECONDS: Final = 10.0


@dataclass(slots=True)
class Pace:
    """A lane's own wait after batches that failed as a whole: doubling, jittered, gone at the first success."""

    base_seconds: float
    cap_seconds: float
    failures: int = 0

    def failed(self, random: float) -> float:
        ceiling = min(MOST_PACE_SECONDS, self.cap_seconds, self.base_seconds * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return ceiling / 2 + random * ceiling / 2

    def succeeded(self) -> None:
        self.failures = 0


def probe_delay(tries: int, random: float) -> float:
    """0.5, 1, 2, 4, 5, 5 ... seconds between probes, jittered downwards so that the bound holds."""
    ceiling = min(PROBE_SECONDS, 0.5 * 2.0 ** min(tries, 10))
    return ceiling * (0.75 + 0.25 * random)
