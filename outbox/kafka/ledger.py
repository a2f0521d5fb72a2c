"""Counts the offsets of one partition: which were handed out and have no answer yet, and up to where may be committed.

Pure: it knows neither Kafka nor a clock. An offset is closed when Elasticsearch has answered for its record, or when
PostgreSQL has it as a row; nothing else closes one. Offsets need not be consecutive: compaction and transactions leave
gaps.
"""

from collections.abc import Iterable


class OutOfOrder(ValueError):
    """A partition gave an offset again, or one below its last."""


class OffsetLedger:
    """One assignment of one partition: what was handed out before a new one can close nothing in it."""

    __slots__ = ("_open", "next")

    def __init__(self, start: int) -> None:
        self._open: dict[int, None] = {}  # in ascending order, as they were handed out
        self.next = start  # the lowest offset that was never handed out

    @property
    def open(self) -> int:
        return len(self._open)

    def hand_out(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if offset < self.next:
                raise OutOfOrder(f"offset {offset} after {self.next - 1}")
            self._open[offset] = None
            self.next = offset + 1

    def close(self, offsets: Iterable[int]) -> None:
        """Answered or stored. One that is not open is nobody's: a late answer changes nothing."""
        forget = self._open.pop
        for offset in offsets:
            forget(offset, None)

    def committable(self) -> int:
        """Every record below it is answered or stored. What is committed is the next offset to be read."""
        return next(iter(self._open), self.next)
