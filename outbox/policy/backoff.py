"""How long to wait before the next try: a capped exponential with equal jitter. Randomness is handed in."""

from dataclasses import dataclass


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

    def shortest_outage_that_fails(self, max_attempts: int) -> float:
        """Seconds from the first failed attempt to the last one, if every draw is the smallest."""
        return sum(self.ceiling(attempt) / 2 for attempt in range(1, max_attempts))
