"""An event, in a list and in full, for the API's document."""

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
    read_version: int | None
    read_found: bool | None


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
