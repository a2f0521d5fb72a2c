"""How many items a request may hold, shared by all lanes: half after pressure, a step more after success."""

import threading
from dataclasses import dataclass, replace

from outbox.facts import Announce, LimitChanged
from outbox.ports import WriteReport


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """A value: `after` returns the next one. Starts at the largest, because most sinks never push back."""

    largest: int
    items: int
    step: int

    @classmethod
    def full(cls, largest: int) -> "BatchLimit":
        """A twentieth per step: back at full size after 10 good batches that follow a single halving."""
        return cls(largest, largest, max(1, largest // 20))

    def after(self, *, pressure: bool) -> "BatchLimit":
        """Pressure is a 429, a breaker, a 413 or a timeout on the way."""
        items = max(1, self.items // 2) if pressure else min(self.largest, self.items + self.step)
        return self if items == self.items else replace(self, items=items)


class SharedLimit:
    def __init__(self, largest: int, announce: Announce) -> None:
        self._limit = BatchLimit.full(largest)
        self._announce = announce
        self._lock = threading.Lock()
        announce(LimitChanged(largest, "start"))

    def items(self) -> int:
        return self._limit.items

    def report(self, report: WriteReport) -> None:
        """Learn from one write. A sink that is down says nothing about how much it could take."""
        if report.unreachable is not None and not report.pressure:
            return
        with self._lock:
            before, self._limit = self._limit, self._limit.after(pressure=report.pressure)
            changed = before.items != self._limit.items
        if changed:
            self._announce(LimitChanged(self._limit.items, "pressure" if report.pressure else "success"))
