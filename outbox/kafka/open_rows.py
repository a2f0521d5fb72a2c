"""Counts the open events of each partition: too many, and it rests, because the topic is the buffer. Pure."""

from collections import Counter
from collections.abc import Mapping


class OpenRows:
    """Between two counts only what was stored is added: a partition may be over the limit by one batch."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[int] = Counter()

    def counted(self, found: Mapping[int, int]) -> None:
        self._open = Counter(found)

    def stored(self, partition: int, rows: int) -> None:
        self._open[partition] += rows

    @property
    def has_any(self) -> bool:
        return any(self._open.values())

    def reasons(self) -> dict[int, str]:
        return {
            partition: f"{rows:,} of its events wait in PostgreSQL, and {self._most:,} may (KAFKA_MAX_OPEN_EVENTS)"
            for partition, rows in sorted(self._open.items())
            if rows >= self._most
        }
