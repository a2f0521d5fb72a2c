"""Failed events by what went wrong, and the preview of a replay. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol
from uuid import UUID

from outbox.ops import inputs
from outbox.ops.stored import failure_type
from outbox.policy.filter import NONE, EventFilter

SPARK_HOURS: Final = 24
MOST_GROUPS: Final = 200

Row = Mapping[str, Any]


class Failures(Protocol):
    def preview(self, asked: EventFilter, limit: int, offset: int) -> Sequence[Row]: ...
    def count(self, asked: EventFilter, most: int) -> int: ...
    def by_type(self, asked: EventFilter) -> Mapping[str, int]: ...
    def groups(self, asked: EventFilter, limit: int) -> Sequence[Row]: ...
    def group_samples(self, fingerprints: Sequence[str]) -> Mapping[str, Row]: ...
    def group_hours(self, fingerprints: Sequence[str], window: timedelta) -> Sequence[tuple[str, datetime, int]]: ...


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one kind. `failed_again`: of them, replayed before. `hours`: the last 24, the newest last."""

    fingerprint: str
    error_reason: str | None
    error_code: str | None
    failure_type: str
    count: int
    failed_again: int
    entity_types: Sequence[str]
    dead_reasons: Sequence[str]
    first_failed_at: datetime
    last_failed_at: datetime
    last_day: int
    day_before: int
    hours: Sequence[int]
    sample_id: UUID | None
    sample_error: str | None
    last_replayed_at: datetime | None


@dataclass(frozen=True, slots=True)
class PreviewRow:
    id: UUID
    entity_type: str
    entity_id: str
    op: str
    event_version: int
    status: str
    attempts: int
    replay_count: int
    error_reason: str | None
    error_code: str | None
    error: str | None
    error_fingerprint: str | None
    dead_reason: str | None
    failed_at: datetime
    created_at: datetime
    last_replayed_at: datetime | None
    trace_id: str | None


@dataclass(frozen=True, slots=True)
class Preview:
    """One page of what a replay would take, in its order. `total` stops at 10,001, which reads "10,000+"."""

    page: int
    page_size: int
    total: int
    rows: Sequence[PreviewRow]

    @property
    def has_more(self) -> bool:
        return self.page * self.page_size < self.total


@dataclass(frozen=True, slots=True)
class FailureDesk:
    store: Failures

    def preview(self, asked: EventFilter, page: int = 1, page_size: int = 50) -> Preview:
        """No side effect. Pages count from 1; 500 rows a page at most."""
        size = inputs.whole("page_size", page_size, 1, 500)
        number = inputs.whole("page", page, 1, 1_000_000 // size + 1)
        rows = [PreviewRow(**row) for row in self.store.preview(asked, size, (number - 1) * size)]
        return Preview(number, size, self.store.count(asked, inputs.MOST_COUNTED + 1), rows)

    def by_type(self, asked: EventFilter) -> Mapping[str, int]:
        """How many failed events of each entity type match."""
        return self.store.by_type(asked)

    def groups(self, asked: EventFilter, limit: int = 100) -> Sequence[FailureGroup]:
        """The largest first."""
        found = self.store.groups(asked, inputs.whole("limit", limit, 1, MOST_GROUPS))
        names = [row["fingerprint"] for row in found if row["fingerprint"] is not None]
        samples = self.store.group_samples(names) if names else {}
        sparks = _sparks(self.store.group_hours(names, timedelta(hours=SPARK_HOURS)) if names else ())
        return [_group(row, samples.get(row["fingerprint"], {}), sparks) for row in found]


def _sparks(hours: Sequence[tuple[str, datetime, int]]) -> dict[str, list[int]]:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    sparks: dict[str, list[int]] = {}
    for fingerprint, hour, n in hours:
        place = SPARK_HOURS - 1 - int((now - hour).total_seconds() // 3600)
        if 0 <= place < SPARK_HOURS:
            sparks.setdefault(fingerprint, [0] * SPARK_HOURS)[place] += n
    return sparks


def _group(row: Row, sample: Row, sparks: Mapping[str, list[int]]) -> FailureGroup:
    return FailureGroup(
        fingerprint=row["fingerprint"] or NONE,
        error_reason=row["error_reason"],
        error_code=row["error_code"],
        failure_type=failure_type(row["error_reason"] or ""),
        count=row["n"],
        failed_again=row["failed_again"],
        entity_types=sorted(row["entity_types"] or ()),
        dead_reasons=sorted(row["dead_reasons"] or ()),
        first_failed_at=row["first_failed_at"],
        last_failed_at=row["last_failed_at"],
        last_day=row["last_day"],
        day_before=row["day_before"],
        hours=sparks.get(row["fingerprint"], [0] * SPARK_HOURS),
        sample_id=sample.get("id"),
        sample_error=sample.get("error"),
        last_replayed_at=sample.get("last_replayed_at"),
    )
