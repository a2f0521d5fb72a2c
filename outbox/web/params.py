"""What requests give: filters, ids, the actor and the reason, as models of the API or as forms of the pages."""

from __future__ import annotations

import getpass
import hashlib
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote
from uuid import UUID

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outbox.ops import inputs as read
from outbox.policy.audit import Action, Actor, Source
from outbox.policy.filter import (
    CONTROL,
    FAILURE_TYPES,
    FINGERPRINT,
    LONGEST_VALUE,
    MOST_IDS,
    TRACE_ID,
    AuditFilter,
    EventFilter,
)
from outbox.policy.outcome import Code, DeadReason
from outbox.web.auth.accounts import Person
from outbox.web.idempotency import HEADER
from outbox.web.problems import RefusedRequest
from outbox.web.services import Services

ONE_LINE = rf"^[^{CONTROL}]*[^\s{CONTROL}][^{CONTROL}]*$"
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
    fingerprint: str | None = Field(None, pattern=rf"^({FINGERPRINT})$", description="Similar failures share one.")
    trace_id: str | None = Field(None, pattern=rf"^{TRACE_ID}$", description="The trace part of `traceparent`.")
    since: str | None = Field(None, max_length=64, pattern=_TIME, description=_AGE)
    until: str | None = Field(None, max_length=64, pattern=_TIME, description=_AGE + " Not included.")


class EventIdsQuery(EventQuery):
    """The same with ids, which a query string repeats."""

    ids: list[UUID] | None = Field(None, max_length=MOST_IDS, description="Exactly these events.")


class AuditQuery(Strict):
    """The one audit filter."""

    entity_type: str | None = Field(None, max_length=LONGEST_VALUE, description="Acts on this entity type.")
    entity_id: str | None = Field(None, max_length=LONGEST_VALUE, description="Acts on this entity.")
    trace_id: str | None = Field(None, pattern=rf"^{TRACE_ID}$", description="Acts on events of this trace.")
    action: Action | None = Field(None, description="What was done.")
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


def event_filter_of(asked: EventQuery) -> EventFilter:
    return read.event_filter(asked.model_dump(include=set(EventFilter.__dataclass_fields__), exclude_none=True))


def audit_filter_of(asked: AuditQuery) -> AuditFilter:
    return read.audit_filter(asked.model_dump(include=set(AuditFilter.__dataclass_fields__), exclude_none=True))


def _services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def _person(request: Request) -> Person:
    found: Person = request.state.person
    return found


At = Annotated[Services, Depends(_services)]
Who = Annotated[Person, Depends(_person)]


def actor_of(who: Person, act: Act) -> Actor:
    return read.actor(who.acting(act.by) if who.by_token else (act.by or ""), Source.API, str(who.role))


def client_id(request: Request, who: Person) -> str | None:
    """The idempotency key as it is kept in a replay's row: its length is ours, and nobody meets another's."""
    key = request.headers.get(HEADER)
    return f"api-{hashlib.sha256(f'{who.name} {key}'.encode()).hexdigest()[:48]}" if key else None


def capped(count: int) -> dict[str, Any]:
    """`10,000+`: a number that people can act on, and whether there are more."""
    most = read.MOST_COUNTED
    return {"matched": min(count, most), "matched_capped": count > most}


EVENT_FIELDS = tuple(EventFilter.__dataclass_fields__)
AUDIT_FIELDS = tuple(AuditFilter.__dataclass_fields__)
_NAME_COOKIE = "outbox_by"


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def person(request: Request) -> Person:
    found: Person = request.state.person
    return found


def raw_filter(values: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The filter's words from a query string or a form, each as it was written."""
    raw: dict[str, Any] = {}
    for name in names:
        given = [each for each in values.getlist(name) if each != ""]
        if given:
            raw[name] = given if name == "ids" else given[-1]
    return raw


def event_filter(values: Any) -> EventFilter:
    raw = raw_filter(values, EVENT_FIELDS)
    if "ids" in raw:
        raw["ids"] = " ".join(raw["ids"])
    return read.event_filter(raw)


def audit_filter(values: Any) -> AuditFilter:
    return read.audit_filter(raw_filter(values, AUDIT_FIELDS))


def number(values: Any, name: str, default: int, least: int, most: int) -> int:
    """A page's number is clamped, not refused: an old bookmark should still show something."""
    text = str(values.get(name) or "")
    return max(least, min(int(text), most)) if text.isdecimal() and len(text) < 10 else default


def event_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise RefusedRequest(404, "An event's id is a uuid; this is none.") from None


def actor(request: Request, said: str | None) -> Actor:
    """Who acts on a page: the token's name, or on loopback the name that the person gives."""
    who = person(request)
    name = said if who.by_token is False else None
    return read.actor(who.acting(name) if who.by_token else (said or ""), Source.CONSOLE, str(who.role))


def said_by(request: Request) -> str:
    """The name that a person gave last time on this browser, or the account that runs the console."""
    if kept := request.cookies.get(_NAME_COOKIE):
        return unquote(kept)[:120]
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def go(request: Request, to: str, said: str = "", by: str | None = None) -> Response:
    """After an act: see other. The name is kept for the next form."""
    glue = "&" if "?" in to else "?"
    answer = RedirectResponse(f"{to}{glue}said={said}" if said else to, 303)
    if by and not person(request).by_token:
        answer.set_cookie(_NAME_COOKIE, quote(by[:120]), max_age=31_536_000, httponly=True, samesite="strict")
    return answer


async def _form(request: Request) -> FormData:
    return await request.form()


Sent = Annotated[FormData, Depends(_form)]
