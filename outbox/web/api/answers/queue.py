"""How it is now, for the API's document."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from outbox.web.api.answers.acts import AuditList, Pause
from outbox.web.api.answers.events import Event


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
    done: int = Field(description="Finished, as far back as the roll-up remembers (90 days).")
    discarded: int = Field(description="Discarded now.")
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
