"""Owns how many items a request may hold: half after pressure, a step more after success. It measures nothing."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """A value: `after` returns the next one. Starts at the largest, because most sinks never push back."""

    largest: int
    items: int
    step: int

    @classmethod
    def full(cls, largest: int) -> "BatchLimit":
        """A twentieth a step: back at full size after 10 good batches that follow a single halving."""
        return cls(largest, largest, max(1, largest // 20))

    def after(self, *, pressure: bool) -> "BatchLimit":
        """Pressure is a 429, a breaker, a 413 or a timeout on the way."""
        items = max(1, self.items // 2) if pressure else min(self.largest, self.items + self.step)
        return self if items == self.items else replace(self, items=items)
