"""A backfill of the index in use, as it stands. Pure: nothing here copies a document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class BackfillRun:
    """`held`: a process works on it now. `newer`: documents of which the index had a later version already."""

    id: int
    entity_types: tuple[str, ...]
    status: str
    cursor: Mapping[str, Any] | None
    total: int | None
    written: int
    newer: int
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

    @property
    def place(self) -> str:
        """How far it is, as a person reads it."""
        if self.cursor is None:
            return "at the beginning"
        return f"after {self.cursor['type']} {self.cursor['after']}"
