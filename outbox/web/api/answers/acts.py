"""What people did: audit rows, pauses, deliveries, for the API's document."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field


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
