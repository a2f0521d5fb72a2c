"""Counts the open events of each partition, and says which have so many that they rest: the topic is the buffer, and
not PostgreSQL. Pure."""

from collections import Counter
from collections.abc import Mapping


class OpenRows:
    """Between two counts of the rows only what was stored since is added: a partition may be over the limit by a batch
    for each of its lanes, which is one."""

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
