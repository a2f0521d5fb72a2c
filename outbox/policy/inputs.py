"""What people give: the event filter and the audit filter, names, reasons, ids and cursors, checked and typed.

Commands, API and console read with the same functions; all invalid fields are reported at once, and a refusal changes
nothing. Knows no SQL and no clock.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from outbox.errors import NotFound, UsageError
from outbox.policy.audit import Action, Actor, Source
from outbox.policy.outcome import Code, DeadReason, Reason

MOST_IDS: Final = 500
NONE: Final = "none"  # `error_reason=none`, `fingerprint=none`: adopted rows that failed without one
FAILURE_TYPES: Final = tuple(sorted({reason.failure_type for reason in Reason}))
LONGEST_VALUE: Final = 1024
FINGERPRINT: Final = r"[0-9a-f]{16}|none"
TRACE_ID: Final = r"[0-9a-f]{32}"
# Control characters, line separators and direction marks: what is kept, shown or searched by must read as it is.
CONTROL: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_NOT_ONE_LINE: Final = re.compile(rf"[{CONTROL}\ud800-\udfff]")  # half characters too, which no JSON schema can name
LONGEST_NAME: Final = 120  # an adopted table's last_replayed_by holds no more
LONGEST_REASON: Final = 1_000
MOST_COUNTED: Final = 10_000  # beyond it people read "10,000+"
LAST: Final = (datetime(9999, 1, 1, tzinfo=UTC), UUID(int=2**128 - 1))
_AGO: Final = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class BadRequest(UsageError):
    """The request is invalid. Correct what is named; nothing was changed."""

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{field}: {what}" for field, what in self.problems))


class NothingMatches(NotFound):
    """No event is in a state that this can change. Check with `outbox list` or a dry run; nothing was changed."""

    exit_code = 2


def read_time(value: Any, now: datetime) -> datetime:
    """An ISO 8601 time or date (UTC where it names no zone), or an age such as `90s`, `15m`, `2h`, `7d`, `4w`."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    text = str(value).strip()
    try:
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("give an ISO 8601 time such as 2026-02-03T10:00:00Z, or an age such as 2h or 7d") from None


def read_ids(value: Any) -> tuple[UUID, ...]:
    """Up to 500 ids, each once, in the order given; a string may hold several, parted by commas or white space."""
    if isinstance(value, str):
        value = re.split(r"[,\s]+", value.strip())
    elif not isinstance(value, Iterable):
        raise ValueError("give a list of ids")
    ids = tuple(dict.fromkeys(_uuid(part) for part in value if part not in ("", None)))
    if not ids:
        # Not the same as no ids: an empty selection must never mean everything.
        raise ValueError("the list is empty")
    if len(ids) > MOST_IDS:
        raise ValueError(f"{len(ids)} ids given, {MOST_IDS} at most")
    return ids


def is_one_line(text: str) -> bool:
    return _NOT_ONE_LINE.search(text) is None


def read_text(value: Any) -> str:
    """A value that is compared with a column: one line of at most 1,024 bytes."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise ValueError("give a text")
    text = str(value)
    if not is_one_line(text):
        raise ValueError("control characters are not allowed")
    if len(text.encode()) > LONGEST_VALUE:
        raise ValueError(f"longer than {LONGEST_VALUE} bytes")
    return text


_Reader = Callable[[Any, datetime], Any]


def _timeless(read: Callable[[Any], Any]) -> _Reader:
    return lambda value, now: read(value)


def _one_of(values: Iterable[str]) -> _Reader:
    known = tuple(values)

    def read(value: Any) -> str:
        if (text := read_text(value)) not in known:
            raise ValueError(f"{text[:80]!r} is none of {', '.join(known)}")
        return text

    return _timeless(read)


def _pattern(pattern: str, wanted: str) -> _Reader:
    compiled = re.compile(pattern)

    def read(value: Any) -> str:
        if not compiled.fullmatch(text := read_text(value).lower()):
            raise ValueError(f"give {wanted}")
        return text

    return _timeless(read)


def _uuid(value: Any) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(read_text(value))
    except ValueError:
        raise ValueError(f"{str(value)[:80]!r} is not a uuid") from None


_text = _timeless(read_text)
_trace = _pattern(TRACE_ID, "the 32 hex digits of a trace id")
_SINCE: Final = (
    "Not before: an ISO 8601 time (UTC where it names no zone), or an age such as `90s`, `15m`, `2h`, `7d`, `4w`."
)
_UNTIL: Final = _SINCE.replace("Not before", "Before")


# ruff: noqa: RUF009  (it makes a field, not a default)
def _asked(read: _Reader, text: str, metavar: str, default: Any = None) -> Any:
    """A field of a filter: how it is read, and how commands and the API describe it."""
    return field(default=default, metadata={"read": read, "text": text, "metavar": metavar})


@dataclass(frozen=True, slots=True)
class EventFilter:
    """All that is given must match. `since` and `until` are about the time of an event's state: failed_at of failed
    events, processed_at of done and discarded ones, created_at of open ones; `until` is not included."""

    entity_type: str | None = _asked(_text, "Exactly this entity type.", "TYPE")
    entity_id: str | None = _asked(
        _text, "Exactly this entity. Over done rows it needs `outbox migrate --by-entity`.", "ID"
    )
    # Not the closed list: an adopted table holds reasons of its own.
    error_reason: str | None = _asked(_text, "Such as `es_rejected_document`; `none` for none.", "REASON")
    error_code: str | None = _asked(_one_of(Code), "Such as `OUTBOX_PAYLOAD_INVALID`.", "CODE")
    dead_reason: str | None = _asked(_one_of(DeadReason), "Why it failed for good, such as `non_retryable`.", "REASON")
    failure_type: str | None = _asked(
        _one_of(FAILURE_TYPES), "The coarse kind of the reason, such as `document` or `network`.", "TYPE"
    )
    fingerprint: str | None = _asked(
        _pattern(FINGERPRINT, "the 16 hex digits of a fingerprint, or `none`"), "Similar failures share one.", "HEX"
    )
    trace_id: str | None = _asked(_trace, "The trace part of `traceparent`.", "HEX")
    ids: tuple[UUID, ...] = _asked(_timeless(read_ids), "Exactly these events; repeatable, 500 at most.", "UUID", ())
    since: datetime | None = _asked(read_time, _SINCE, "TIME")
    until: datetime | None = _asked(read_time, _UNTIL, "TIME")

    @property
    def is_empty(self) -> bool:
        return not given(self)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """All that is given must match; `since` and `until` are about the time of the act."""

    entity_type: str | None = _asked(_text, "Acts on this entity type.", "TYPE")
    entity_id: str | None = _asked(_text, "Acts on this entity.", "ID")
    trace_id: str | None = _asked(_trace, "Acts on events of this trace.", "HEX")
    action: str | None = _asked(_one_of(Action), "What was done, such as `REPLAY_BATCH_ITEM`.", "ACTION")
    actor: str | None = _asked(_text, "Who did it.", "NAME")
    batch_id: UUID | None = _asked(_timeless(_uuid), "The replay, flush or prune it belongs to.", "UUID")
    since: datetime | None = _asked(read_time, _SINCE, "TIME")
    until: datetime | None = _asked(read_time, _UNTIL, "TIME")


def given(asked: EventFilter | AuditFilter) -> dict[str, Any]:
    """What was asked for, as JSON may carry it: `read_...` of this gives the same filter."""
    values = {each.name: getattr(asked, each.name) for each in fields(asked)}
    return {name: _plain(value) for name, value in values.items() if value not in (None, ())}


def parameters(asked: EventFilter | AuditFilter) -> dict[str, Any]:
    """The values of its conditions (`store/queries/filters.sql`); None is not asked for. A failure type is a list of
    reasons, and `unknown` also every reason that we do not know."""
    named = {f"f_{each.name}": getattr(asked, each.name) for each in fields(asked)}
    if isinstance(asked, EventFilter):
        kinds = {str(reason): reason.failure_type for reason in Reason}
        named["f_ids"] = list(asked.ids) or None
        named["f_reasons"] = asked.failure_type and [name for name, kind in kinds.items() if kind == asked.failure_type]
        named["f_known_reasons"] = list(kinds)
    return named


def described(asked: EventFilter | AuditFilter) -> str:
    parts = [f"{len(v)} ids" if name == "ids" else f"{name}={v}" for name, v in given(asked).items()]
    return ", ".join(parts) or "everything"


def read_event_filter(raw: Mapping[str, Any], now: datetime) -> EventFilter:
    """Raw words from a command line, a query string or JSON; None and "" are not given. Raises BadRequest."""
    return EventFilter(**_read(raw, EventFilter, now))


def read_audit_filter(raw: Mapping[str, Any], now: datetime) -> AuditFilter:
    return AuditFilter(**_read(raw, AuditFilter, now))


def _read(raw: Mapping[str, Any], kind: type[EventFilter | AuditFilter], now: datetime) -> dict[str, Any]:
    readers: dict[str, _Reader] = {each.name: each.metadata["read"] for each in fields(kind)}
    problems = [(name, f"unknown; choose from {', '.join(readers)}") for name in raw if name not in readers]
    values: dict[str, Any] = {}
    for name, reader in readers.items():
        if (value := raw.get(name)) in (None, "", ()):
            continue
        try:
            values[name] = reader(value, now)
        except ValueError as wrong:
            problems.append((name, str(wrong)))
    since, until = values.get("since"), values.get("until")
    if not problems and since is not None and until is not None and since >= until:
        problems = [("since", "must be before `until`")]
    if problems:
        raise BadRequest(problems)
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [str(part) for part in value]
    return str(value)


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
        return _uuid(value)
    except ValueError as wrong:
        raise BadRequest([(field, str(wrong))]) from None


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
