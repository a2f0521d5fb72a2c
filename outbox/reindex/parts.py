"""How a large job over keys is cut into parts, and over how many processes they are spread. Pure: reads nothing.

A part has the keys after `low`, up to and including `high`, in the order of their own type; None means no bound. The
parts of one entity type touch and do not overlap, whatever the bounds are, as long as they grow in that order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

# A part of 20,000 documents takes 2 to 4 s: a kill costs little, and the last parts end together.
PART_DOCUMENTS: Final = 20_000
MOST_PARTS: Final = 4_096  # of one work: rows of a table that is summed up every second
PER_PROCESS: Final = 4  # parts at least, so that a process that is done early takes over from the others
MOST_PROCESSES: Final = 64
BY_CORES: Final = 8  # processes at most, where nobody says how many: they share two servers
# Below this one process is done before others have started.
WORTH_IT: Final = 50_000
# One process copies 5,000 to 10,000 documents per second and compares about as many (`scripts/bench backfill`).
ONE_PROCESS_RATE: Final = 4_000.0


class WorkKind(StrEnum):
    REBUILD = "rebuild"
    BACKFILL = "backfill"
    VERIFICATION = "verification"


class Work(NamedTuple):
    """What parts belong to: a rebuild, a backfill or a comparison, by its id."""

    kind: WorkKind
    id: int


class PlannedPart(NamedTuple):
    number: int
    entity_type: str | None
    low: str | None = None
    high: str | None = None
    place: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RebuildPart:
    id: int
    number: int
    entity_type: str | None
    low: str | None
    high: str | None
    place: Mapping[str, Any] | None
    cursor: str | None

    @property
    def after(self) -> str | None:
        return self.cursor if self.cursor is not None else self.low


@dataclass(frozen=True, slots=True)
class PartsProgress:
    """Sums over all parts. `stuck`: every process failed at it. `slowest`: of those at work, the one begun first."""

    parts: int = 0
    open: int = 0
    stuck: int = 0
    held: int = 0
    written: int = 0
    newer: int = 0
    refused: int = 0
    slowest: int | None = None
    slowest_done: int | None = None
    slowest_seconds: float | None = None

    @property
    def done(self) -> int:
        return self.written + self.newer + self.refused

    @property
    def remark(self) -> str:
        """What a person reads beside the bar."""
        said = f"{self.parts - self.open} of {self.parts} parts"
        if self.slowest is None:
            return said
        return f"{said}, slowest {self.slowest} with {self.slowest_done:,} in {self.slowest_seconds or 0.0:.0f} s"


def processes(asked: int | None, cores: int, documents: int, rate: float) -> int:
    """How many are worth it. What a person asks for counts; otherwise one per core, or one where it would not be
    faster: little to do, or a rate that one process keeps up with."""
    if asked is not None:
        return max(1, min(asked, MOST_PROCESSES))
    if documents < WORTH_IT or 0 < rate <= ONE_PROCESS_RATE:
        return 1
    return max(1, min(cores, BY_CORES))


def number_of_parts(documents: int, at_once: int) -> int:
    wanted = max(documents // PART_DOCUMENTS, at_once * PER_PROCESS)
    return max(1, min(wanted, MOST_PARTS, documents))


def cut(keys: Sequence[str], parts: int) -> list[tuple[str | None, str | None]]:
    """Ranges of about the same weight: between keys that stand equally far apart, in their order and each once."""
    chosen = [keys[(place * len(keys)) // parts] for place in range(1, parts)] if keys else []
    bounds: list[str | None] = [None, *dict.fromkeys(chosen), None]
    return list(pairwise(bounds))


def planned(ranges: Mapping[str, Sequence[tuple[str | None, str | None]]], first: int = 1) -> Iterator[PlannedPart]:
    """Every type's ranges, numbered through. The types take turns, so that all are begun early."""
    number = first
    longest = max((len(each) for each in ranges.values()), default=0)
    for place in range(longest):
        for entity_type, each in ranges.items():
            if place < len(each):
                yield PlannedPart(number, entity_type, *each[place])
                number += 1
