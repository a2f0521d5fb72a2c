"""Failed events: previews, plans, groups and statistics, for the API's document."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field


class FailedEvent(BaseModel):
    """A failed event as the preview shows it."""

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


class Preview(BaseModel):
    """What a replay with this filter would take, in its order. No side effect."""

    events: list[FailedEvent]
    page: int
    page_size: int
    matched: int = Field(description="How many match; at most 10,000 are counted.")
    matched_capped: bool = Field(description="There are more than were counted: read `10,000+`.")


class Sample(BaseModel):
    id: UUID
    entity_type: str
    entity_id: str
    event_version: int
    error_reason: str | None
    error_fingerprint: str | None
    error: str | None
    failed_at: datetime | None
    status: str


class Plan(BaseModel):
    """A dry run: what a replay would do. Nothing was changed."""

    dry_run: bool
    filter: dict[str, Any]
    matched: int
    matched_capped: bool
    total: int = Field(description="How many would move, within the limit.")
    by_entity_type: dict[str, int]
    by_error_reason: dict[str, int]
    by_fingerprint: dict[str, int]
    skipped: dict[str, int] = Field(description="Given ids that would not move, by their state.")
    oldest: datetime | None
    newest: datetime | None
    sample: list[Sample]
    superseded: int | None = Field(description="Of the compared, how many Elasticsearch holds in a newer version.")
    compared: int


class Group(BaseModel):
    """Failures of one kind."""

    fingerprint: str
    error_reason: str | None
    error_code: str | None
    failure_type: str
    count: int
    failed_again: int = Field(description="Of them, replayed before.")
    entity_types: list[str]
    dead_reasons: list[str]
    first_failed_at: datetime
    last_failed_at: datetime
    last_day: int
    day_before: int
    hours: list[int] = Field(description="The last 24 hours, the newest last.")
    sample_id: UUID | None
    sample_error: str | None
    last_replayed_at: datetime | None


class GroupList(BaseModel):
    groups: list[Group]


class Flushed(BaseModel):
    id: UUID = Field(description="The `batch_id` of its audit rows.")
    count: int


class FailedStats(BaseModel):
    total: int
    by_entity_type: dict[str, int]
    by_reason: dict[str, int]
    by_failure_type: dict[str, int]


class HourOfFailures(BaseModel):
    hour: datetime
    by_failure_type: dict[str, int]


class HourOfWork(BaseModel):
    hour: datetime
    outcomes: dict[str, int]


class Stats(BaseModel):
    """Failures as they are now, and what became of events over the hours."""

    failed: FailedStats
    failed_again: int
    oldest: datetime | None
    newest: datetime | None
    table: dict[str, dict[str, int]] = Field(description="Entity type, then failure type.")
    hours: list[HourOfFailures]
    last_day: int
    day_before: int
    discarded: dict[str, int]
    work: list[HourOfWork]
    finished: dict[str, int]
    replays: dict[str, int]
