"""Reads what people ask for, the same for commands, API and console. A refusal changes nothing."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from outbox.errors import NotFound, UsageError
from outbox.policy.audit import Actor, Source
from outbox.policy.filter import (
    AuditFilter,
    BadFilter,
    EventFilter,
    is_one_line,
    read_audit_filter,
    read_event_filter,
)

LONGEST_NAME: Final = 120  # an adopted table's last_replayed_by holds no more
LONGEST_REASON: Final = 1_000
MOST_COUNTED: Final = 10_000  # beyond it people read "10,000+"
LAST: Final = (datetime(9999, 1, 1, tzinfo=UTC), UUID(int=2**128 - 1))


class BadRequest(UsageError):
    """The request is invalid. Correct what is named; nothing was changed."""

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{field}: {what}" for field, what in self.problems))


class NothingMatches(NotFound):
    """No event is in a state that this can change. Check with `outbox list` or a dry run; nothing was changed."""

    exit_code = 2


def actor(by: str, source: Source, role: str | None = None) -> Actor:
    return Actor(line("by", by, LONGEST_NAME), source, role)


def reason(text: str) -> str:
    return line("reason", text, LONGEST_REASON)


def line(field: str, text: str, longest: int) -> str:
    """One line of text that will be kept for good and shown to others."""
    if not isinstance(text, str) or not text.strip():
        raise BadRequest([(field, "is required")])
    if not is_one_line(text):
        raise BadRequest([(field, "must be one line without control characters")])
    if len(text) > longest:
        raise BadRequest([(field, f"is {len(text):,} characters long, {longest:,} at most")])
    return text.strip()


def whole(field: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadRequest([(field, f"must be a whole number from {least:,} to {most:,}")])
    return value


def rate(value: float | None, default: float) -> float:
    """Rows per second; what is not a number is refused, infinity included."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.01 <= value <= 100_000:
        raise BadRequest([("rate", "must be from 0.01 to 100,000 rows per second")])
    return float(value)


def uuid(field: str, value: object) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        raise BadRequest([(field, f"{str(value)[:80]!r} is not a uuid")]) from None


def event_filter(raw: Mapping[str, Any]) -> EventFilter:
    try:
        return read_event_filter(raw, datetime.now(UTC))
    except BadFilter as wrong:
        raise BadRequest(wrong.problems) from wrong


def audit_filter(raw: Mapping[str, Any]) -> AuditFilter:
    try:
        return read_audit_filter(raw, datetime.now(UTC))
    except BadFilter as wrong:
        raise BadRequest(wrong.problems) from wrong


def cursor(at: datetime, id: UUID) -> str:
    """Where a page ends, as text that the next request brings back."""
    return base64.urlsafe_b64encode(json.dumps([at.isoformat(), str(id)]).encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> tuple[datetime, UUID]:
    """Refused when it is not one of ours: a forged one could only skip rows."""
    if not text:
        return LAST
    try:
        at, id = json.loads(base64.urlsafe_b64decode(text[:300] + "=" * (-len(text) % 4)))
        read = datetime.fromisoformat(at)
        return read if read.tzinfo else read.replace(tzinfo=UTC), UUID(id)
    except (ValueError, TypeError, AttributeError, binascii.Error):
        raise BadRequest([("cursor", "is invalid")]) from None
