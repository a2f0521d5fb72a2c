"""What the API's doors share: the services, the person, the filters as parameters and as bodies."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from outbox.ops import inputs as read
from outbox.policy.audit import Actor, AuditAction, Source
from outbox.policy.filter import FAILURE_TYPES, MOST_IDS, AuditFilter, EventFilter
from outbox.policy.outcome import Code, DeadReason
from outbox.web.auth.roles import Person
from outbox.web.idempotency import HEADER
from outbox.web.services import Services

LONGEST_VALUE = 1024
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
ONE_LINE = rf"^[^{_CONTROL}]*[^\s{_CONTROL}][^{_CONTROL}]*$"
_AGE = "An ISO 8601 time (UTC where it names no zone), or an age such as `90s`, `15m`, `2h`, `7d`, `4w`."
_TIME = r"^(\d{1,6}\s*[smhdw]|\d{4}-\d{2}-\d{2}([T ].*)?)$"
FailureType = Literal[FAILURE_TYPES]  # type: ignore[valid-type]


class Strict(BaseModel):
    """A misspelt name is an error: a filter that was not understood would match everything."""

    model_config = ConfigDict(extra="forbid")


class EventQuery(Strict):
    """The one event filter."""

    entity_type: str | None = Field(None, max_length=LONGEST_VALUE, description="Exactly this entity type.")
    entity_id: str | None = Field(
        None,
        max_length=LONGEST_VALUE,
        description="Exactly this entity. Over done rows it needs `outbox migrate --by-entity`.",
    )
    error_reason: str | None = Field(
        None, max_length=LONGEST_VALUE, description="Such as `es_rejected_document`; `none` for none."
    )
    error_code: Code | None = Field(None, description="Such as `OUTBOX_PAYLOAD_INVALID`.")
    dead_reason: DeadReason | None = Field(None, description="Why it was given up.")
    failure_type: FailureType | None = Field(None, description="The coarse kind of the reason.")
    fingerprint: str | None = Field(
        None, pattern=r"^([0-9a-f]{16}|none)$", description="Failures that look alike share one."
    )
    trace_id: str | None = Field(None, pattern=r"^[0-9a-f]{32}$", description="The trace part of `traceparent`.")
    since: str | None = Field(None, max_length=64, pattern=_TIME, description=_AGE)
    until: str | None = Field(None, max_length=64, pattern=_TIME, description=_AGE + " Not included.")


class EventIdsQuery(EventQuery):
    """The same with ids, which a query string repeats."""

    ids: list[UUID] | None = Field(None, max_length=MOST_IDS, description="Exactly these events.")


class AuditQuery(Strict):
    """The one audit filter."""

    entity_type: str | None = Field(None, max_length=LONGEST_VALUE, description="Acts on this entity type.")
    entity_id: str | None = Field(None, max_length=LONGEST_VALUE, description="Acts on this entity.")
    trace_id: str | None = Field(None, pattern=r"^[0-9a-f]{32}$", description="Acts on events of this trace.")
    action: AuditAction | None = Field(None, description="What was done.")
    actor: str | None = Field(None, max_length=LONGEST_VALUE, description="Who did it.")
    batch_id: UUID | None = Field(None, description="The replay, flush or prune it belongs to.")
    since: str | None = Field(None, max_length=64, pattern=_TIME, description=_AGE)
    until: str | None = Field(None, max_length=64, pattern=_TIME, description=_AGE + " Not included.")


class Act(Strict):
    """Who acts, and why."""

    by: str | None = Field(
        None,
        max_length=120,
        pattern=ONE_LINE,
        description="Who acts. Required without tokens; with one, for whom the token acts.",
    )
    reason: str = Field(
        min_length=1, max_length=1000, pattern=ONE_LINE, description="Why; one line, kept in the audit."
    )


def event_filter(asked: EventQuery) -> EventFilter:
    return read.event_filter(asked.model_dump(include=set(EventFilter.__dataclass_fields__), exclude_none=True))


def audit_filter(asked: AuditQuery) -> AuditFilter:
    return read.audit_filter(asked.model_dump(include=set(AuditFilter.__dataclass_fields__), exclude_none=True))


def _services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def _person(request: Request) -> Person:
    found: Person = request.state.person
    return found


At = Annotated[Services, Depends(_services)]
Who = Annotated[Person, Depends(_person)]


def actor(who: Person, act: Act) -> Actor:
    return read.actor(who.acting(act.by) if who.by_token else (act.by or ""), Source.API, str(who.role))


def client_id(request: Request, who: Person) -> str | None:
    """The idempotency key as it is kept in a replay's row: its length is ours, and nobody meets another's."""
    key = request.headers.get(HEADER)
    return f"api-{hashlib.sha256(f'{who.name} {key}'.encode()).hexdigest()[:48]}" if key else None


def capped(count: int) -> dict[str, Any]:
    """`10,000+`: a number that people can act on, and whether there are more."""
    most = read.MOST_COUNTED
    return {"matched": min(count, most), "matched_capped": count > most}
