"""An event as it is stored and as programs and people see it. Holds no behaviour of the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Self
from uuid import UUID

import orjson

from outbox.policy.event import FANOUT, REFRESH
from outbox.policy.outcome import Reason

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Why an event failed, or last failed, and when. `detail` of a failed event: the cause chain of Elasticsearch's
    reply (`{"status", "rule", "why", "error": {"type", "reason", "caused_by"}}`), or our own finding in the same form;
    redacted."""

    reason: str
    code: str | None
    message: str | None
    fingerprint: str | None
    dead_reason: str | None
    failure_type: str
    failed_at: datetime | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One row, without its payload. Times are aware; `None` is SQL's null."""

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
    last_replayed_at: datetime | None
    last_replayed_by: str | None
    last_replayed_reason: str | None
    traceparent: str | None
    created_at: datetime
    updated_at: datetime
    read_version: int | None = None  # of a refresh that is done: the version under which it was written
    read_found: bool | None = None  # and whether the view had the entity then
    fanout_attachment: int | None = None  # of a fan-out: the attachment whose query says which documents are touched
    fanout_cursor: str | None = None  # the last id that has its refresh
    fanout_written: int | None = None  # how many have
    fanout_id: UUID | None = None  # of a refresh that a fan-out wrote
    error_detail: bytes | None = None  # JSON; only of failed events and of one that is shown alone

    @classmethod
    def of(cls, row: Row) -> Self:
        """From a row with at least the columns that have no default here."""
        return cls(**{name: row[name] for name in _FIELDS if name in row})

    @property
    def is_failed(self) -> bool:
        return self.status == "failed"

    @property
    def read(self) -> str:
        """What a refresh found in the view, in words; empty of any other event and of one that is not done."""
        if self.read_version is None:
            return ""
        found = "the view had the entity: written" if self.read_found else "the view did not have the entity: deleted"
        return f"{found} as version {self.read_version}"

    @property
    def fanned_out(self) -> str:
        """How far a fan-out is, in words; empty of any other event."""
        if self.op != FANOUT:
            return ""
        written = self.fanout_written or 0
        upto = f", up to {self.fanout_cursor}" if self.fanout_cursor is not None and self.status != "done" else ""
        return f"{written:,} refresh{'' if written == 1 else 'es'} written{upto}"

    @property
    def holds_version(self) -> int | None:
        """What Elasticsearch's version is to be compared with. None: a refresh that is not done draws a new one, and a
        fan-out is of no document."""
        return self.read_version if self.op in (REFRESH, FANOUT) else self.event_version

    @property
    def trace_id(self) -> str | None:
        parts = (self.traceparent or "").split("-")
        return parts[1] if len(parts) >= 4 else None

    @property
    def error_info(self) -> ErrorInfo | None:
        """The last failure, or None where there was none. A retry that waits has one too."""
        if self.error_reason is None:
            return None
        return ErrorInfo(
            reason=self.error_reason,
            code=self.error_code,
            message=self.error,
            fingerprint=self.error_fingerprint,
            dead_reason=self.dead_reason,
            failure_type=failure_type(self.error_reason),
            failed_at=self.failed_at,
            detail=_read(self.error_detail),
        )


_FIELDS: Final = tuple(field.name for field in fields(StoredEvent))


def _read(detail: bytes | None) -> Mapping[str, Any] | None:
    """What someone else wrote there before the table was adopted need not be in our form."""
    try:
        found = orjson.loads(detail) if detail else None
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def failure_type(reason: str) -> str:
    """The coarse kind of a reason; an adopted table may hold reasons of its own."""
    return _KNOWN.get(reason, Reason.UNKNOWN.failure_type)


_KNOWN: Final = {str(each): each.failure_type for each in Reason}
