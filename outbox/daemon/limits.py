"""The batch limit in force, shared by all lanes of a process. The arithmetic is policy's."""

import threading

from outbox.facts import Announce, LimitChanged
from outbox.policy.batch_limit import BatchLimit
from outbox.ports import WriteReport


class Limits:
    def __init__(self, largest: int, announce: Announce) -> None:
        self._limit = BatchLimit.full(largest)
        self._announce = announce
        self._lock = threading.Lock()
        announce(LimitChanged(largest, "start"))

    def items(self) -> int:
        return self._limit.items

    def report(self, report: WriteReport) -> None:
        """Learn from one write. A sink that is away says nothing about how much it could take."""
        if report.unreachable is not None and not report.pressure:
            return
        with self._lock:
            before, self._limit = self._limit, self._limit.after(pressure=report.pressure)
            changed = before.items != self._limit.items
        if changed:
            self._announce(LimitChanged(self._limit.items, "pressure" if report.pressure else "success"))
