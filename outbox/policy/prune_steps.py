"""Where a pass of pruning stands and how large its next step may be. Reads no clock."""

from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

MOST_ROWS: Final = 10_000
QUICK_SECONDS: Final = 0.1
FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)


class PrunePlace(NamedTuple):
    at: datetime = FIRST
    id: UUID = UUID(int=0)


class PruneStep(NamedTuple):
    """One step: rows it checked and removed, and where the next one begins. `skipped`: rows that had to stay only
    because asking whether anyone needs them took too long."""

    looked_at: int
    removed: int
    attempts: int
    place: PrunePlace
    skipped: int = 0


def next_rows(rows: int, took_seconds: float) -> int:
    """Steps grow while they are quick, and shrink when they are not: the drain must not notice."""
    if took_seconds < QUICK_SECONDS:
        return min(rows * 2, MOST_ROWS)
    return max(rows // 2, 1) if took_seconds > 2 * QUICK_SECONDS else rows
