"""The states of a rebuild and the way from step to step; a backfill as it stands. Pure: no step is done here.

created -> mirroring -> backfilling -> verifying -> ready -> swapping -> swapped -> finishing -> finished
                                                                            \\-> rolled_back -> finishing -> finished
anywhere before swapped: cancelling -> cancelled; reported by a daemon: broken, which begins again or is cancelled
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self


class RebuildStep(StrEnum):
    words: str  # what a person reads of it

    def __new__(cls, name: str, words: str = "") -> Self:
        made = str.__new__(cls, name)
        made._value_, made.words = name, words
        return made

    CREATED = "created", "the new index is being made"
    MIRRORING = "mirroring", "waiting for the workers to write to both"
    BACKFILLING = "backfilling", "copying from PostgreSQL"
    VERIFYING = "verifying", "comparing the new index"
    READY = "ready", "ready; `outbox rebuild --swap` lets searches see it"
    SWAPPING = "swapping", "about to swap"
    SWAPPED = "swapped", "swapped; `--rollback` goes back, `--finish` removes the old index"
    ROLLED_BACK = "rolled_back", "rolled back; `--finish` removes the new index"
    FINISHING = "finishing", "waiting for the workers to let go of the index that goes"
    FINISHED = "finished", "finished"
    CANCELLING = "cancelling", "waiting for the workers to let go of the new index"
    CANCELLED = "cancelled", "cancelled"


class RebuildStatus(StrEnum):
    RUNNING = "running"
    SWAPPED = "swapped"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"
    BROKEN = "broken"


OVER: Final = frozenset(
    {RebuildStatus.FINISHED, RebuildStatus.CANCELLED, RebuildStatus.ROLLED_BACK, RebuildStatus.FAILED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongJob:
    """What a rebuild and a backfill have in common. `held`: a process works on it now."""

    id: int
    status: str
    total: int | None
    written: int
    refused: int
    refusals: Sequence[Mapping[str, str]] | None
    started_by: str
    reason: str | None
    owner: str | None
    held: bool | None
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild(LongJob):
    target: str
    old_index: str
    new_index: str
    mapping: Mapping[str, Any] | None
    step: str
    swapped_at: datetime | None
    mirrors: tuple[str, ...]
    revision: int
    broken: str | None
    options: Mapping[str, Any] | None
    verification_id: int | None

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    @property
    def sentence(self) -> str:
        """What a person reads in `outbox status`."""
        told = f"Rebuild of {self.target} ({self.old_index} -> {self.new_index}): {RebuildStep(self.step).words}"
        if self.status == RebuildStatus.BROKEN:
            told = f"Rebuild of {self.target} into {self.new_index} is broken: {self.broken}"
        elif self.step == RebuildStep.BACKFILLING:
            total = max(self.total or 0, self.written)
            told += f", {self.written:,} of about {total:,}"
        if self.refused:
            told += f"; the other mapping refused {self.refused:,} writes"
        return told


def next_index(target: str, names: Sequence[str]) -> str:
    taken = [int(n) for name in names if (n := name.removeprefix(f"{target}-v")).isdigit() and name != n]
    return f"{target}-v{max(taken, default=1) + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRun(LongJob):
    """One backfill as it stands. `newer`: documents of which the index had a later version already."""

    entity_types: tuple[str, ...]
    newer: int

    @property
    def done(self) -> int:
        return self.written + self.newer + self.refused

    @property
    def seconds(self) -> float:
        return ((self.finished_at or self.updated_at) - self.started_at).total_seconds()

    @property
    def rate(self) -> float:
        """Documents per second, pauses before a `--resume` included."""
        return self.done / self.seconds if self.seconds else 0.0


class LastVerification(NamedTuple):
    id: int
    compared: int
    drift: Mapping[str, int]
    finished_at: float
    duration_seconds: float
