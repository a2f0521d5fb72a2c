"""The shapes of the API's answers, for its document: events, replays, audit rows, the queue. They convert nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field


class Event(BaseModel):
    """One row of the outbox, without its payload."""

    id: UUID
    seq: int | None
    entity_type: str
    entity_id: str
    op: str
    event_version: int
    status: str
    attempts: int
    max_attempts: int | None
    replay_count: int
    abandoned_count: int
    routing: str | None
    idempotency_key: str | None
    owner: str | None
    lease_until: datetime | None
    processing_started_at: datetime | None
    last_attempt_at: datetime | None
    next_retry_at: datetime | None
    processed_at: datetime | None
    failed_at: datetime | None
    error_reason: str | None
    error_code: str | None
    error: str | None
    error_fingerprint: str | None
    dead_reason: str | None
    failure_type: str | None
    last_replayed_at: datetime | None
    last_replayed_by: str | None
    last_replayed_reason: str | None
    traceparent: str | None
    trace_id: str | None
    created_at: datetime
    updated_at: datetime


class Attempt(BaseModel):
    """A failed attempt whose cause was this event."""

    attempt: int
    replay: int
    at: datetime
    worker: str | None
    reason: str | None
    code: str | None
    error: str | None
    detail: Any = None


class OwnAct(BaseModel):
    """What a person did with this event."""

    at: datetime
    action: str
    actor: str
    source: str
    reason: str | None
    batch_id: UUID | None


class Related(BaseModel):
    """Another event of the same entity."""

    id: UUID
    status: str
    op: str
    event_version: int
    attempts: int
    error_reason: str | None
    created_at: datetime
    failed_at: datetime | None
    processed_at: datetime | None


class EventDetail(Event):
    """An event with all that is recorded about it."""

    index: str = Field(description="Where its document lives.")
    document_id: str
    payload: Any = Field(description="As the producer wrote it, masked by OUTBOX_REDACT_FIELDS; null for viewers.")
    payload_bytes: int | None
    payload_shown: bool = Field(description="False where the role is too low, or the payload is over a megabyte.")
    error_detail: Any = Field(description="The cause chain, redacted.")
    attempts_log: list[Attempt]
    acts: list[OwnAct]
    related: list[Related]


class EventList(BaseModel):
    events: list[Event]
    next_cursor: str | None = Field(description="Give it as `cursor` for the next page; null at the end.")
    remark: str | None = Field(description="What was not searched, if anything.")


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


class Replay(BaseModel):
    """A replay: a batch of pinned events on its way."""

    id: UUID
    status: str = Field(description="queued, dispatching, following; then settled, failed, timeout or cancelled.")
    requested_by: str
    requested_reason: str
    role: str | None
    source: str
    filter: dict[str, Any] | None
    rate: float | None
    webhook_host: str | None = Field(description="Its own webhook's host; the rest of an address is often a secret.")
    total: int
    replayed: int
    skipped: int
    done: int
    failed_again: int
    still_open: int
    created_at: datetime
    dispatched_at: datetime | None
    settled_at: datetime | None
    updated_at: datetime
    owner: str | None
    poll_count: int
    last_poll_at: datetime | None
    next_poll_at: datetime | None
    cancelled_by: str | None
    failure_type: str | None
    reason: str | None


class ReplayItem(BaseModel):
    event_id: UUID
    state: str
    skip_reason: str | None
    outcome: str | None
    status: str | None
    entity_type: str | None
    entity_id: str | None
    error_reason: str | None
    error: str | None


class ReplayDetail(Replay):
    items: list[ReplayItem] = Field(description="Events that did not simply become done, 500 at most.")


class ReplayList(BaseModel):
    replays: list[Replay]
    next_cursor: str | None


class Requested(BaseModel):
    """The event that was written."""

    id: UUID
    entity_type: str
    entity_id: str
    op: str
    event_version: int


class Discarded(BaseModel):
    id: UUID
    entity_type: str
    entity_id: str


class Flushed(BaseModel):
    id: UUID = Field(description="The `batch_id` of its audit rows.")
    count: int


class Pause(BaseModel):
    """What operators have told the projectors."""

    scope: str = Field(description="`*`, `type:NAME` or `let_fail:FINGERPRINT`.")
    kind: str
    by: str
    reason: str
    at: datetime
    until: datetime | None = None


class Resumed(BaseModel):
    resumed: bool
    scope: str


class AuditRow(BaseModel):
    id: int
    at: datetime
    action: str
    actor: str
    role: str | None
    source: str
    reason: str | None
    batch_id: UUID | None
    event_id: UUID | None
    entity_type: str | None
    entity_id: str | None
    trace_id: str | None
    detail: Any
    prev_hash: str
    hash: str


class AuditList(BaseModel):
    rows: list[AuditRow]
    next_cursor: str | None
    matched: int
    matched_capped: bool


class AuditPruned(BaseModel):
    removed: int = Field(description="Rows removed, or that would be where `dry_run`.")
    before: datetime
    oldest: datetime | None
    newest: datetime | None
    dry_run: bool


class Queue(BaseModel):
    lag: int
    oldest_age_seconds: float
    inflight: int
    stuck: int
    due: int
    waiting: int
    failed: int
    rate: float = Field(description="Events finished a second, over the last ten.")
    drained_in_seconds: float | None
    capped: bool = Field(description="There is more than was counted.")


class TypeCounts(BaseModel):
    entity_type: str
    pending: int
    processing: int
    failed: int
    done: int = Field(description="Finished in the last 24 hours.")
    discarded: int = Field(description="Discarded in the last 24 hours.")
    oldest_age_seconds: float


class Worker(BaseModel):
    worker: str
    state: str
    alive: bool
    host: str
    pid: int
    version: str
    entity_types: list[str]
    started_at: datetime
    heartbeat_at: datetime
    silent_seconds: float
    inflight: int


class Ops(BaseModel):
    """How it is now."""

    sentence: str
    queue: Queue
    failed_by_reason: dict[str, int]
    by_entity_type: list[TypeCounts]
    recent_failures: list[Event]
    recent_audit: AuditList
    workers: list[Worker]
    pauses: list[Pause]
    sampled_at: datetime
    stale: str | None = Field(description="Why this is an old reading, if it is.")


class Delivery(BaseModel):
    id: UUID
    type: str
    to: str
    status: str
    attempts: int
    created_at: datetime
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    response_status: int | None
    error: str | None
    replay_id: UUID | None
    redelivered_by: str | None
    disabled: bool
    body: Any


class DeliveryList(BaseModel):
    deliveries: list[Delivery]
    next_cursor: str | None


class Redelivered(BaseModel):
    id: UUID
    queued: bool


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
