"""Replays, for the API's document."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field


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
