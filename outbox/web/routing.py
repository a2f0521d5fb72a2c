"""How an endpoint becomes a route, and what it reads of a request.

It names its role; access comes first, then the body within its limits, then filters, ids, the actor and the reason, as
models of the API or as forms of the pages.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote
from uuid import UUID

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match

from outbox.ops.status import QueueStatus
from outbox.policy import inputs as read
from outbox.policy.audit import Action, Actor, Source
from outbox.policy.inputs import (
    CONTROL,
    FAILURE_TYPES,
    FINGERPRINT,
    LONGEST_VALUE,
    MOST_IDS,
    TRACE_ID,
    AuditFilter,
    BadRequest,
    EventFilter,
)
from outbox.policy.outcome import Code, DeadReason
from outbox.web import idempotency, problems
from outbox.web.auth import SAFE_METHODS, AccessGate, Person, Role
from outbox.web.idempotency import HEADER
from outbox.web.problems import RefusedRequest
from outbox.web.services import Services
from outbox.web.templating import NAME_COOKIE

MOST_BYTES: Final = 262_144  # 500 ids with a filter are 20 KB
MOST_DROPPED: Final = 8_388_608
MOST_SECONDS: Final = 10.0
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"


async def read_body(request: Request, accepted: str) -> bytes:
    """The body, kept in the request so that the framework reads it from there."""
    try:
        body = await asyncio.wait_for(_collect(request), MOST_SECONDS)
    except TimeoutError:
        raise RefusedRequest(408, f"The body did not arrive within {MOST_SECONDS:.0f} s.") from None
    except ClientDisconnect:
        raise RefusedRequest(400, "The client disconnected before its body was read.") from None
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and said != accepted:
        raise RefusedRequest(415, f"Send {accepted}, not {said[:80] or 'a body without a content type'}.")
    request._body = body
    return body


async def _collect(request: Request) -> bytes:
    """What is too large is read to its end and dropped, within reason: a client that still sends hears no answer."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 12 or int(length) > MOST_DROPPED):
        raise _too_large()
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= MOST_BYTES:
            parts.append(part)
        elif size > MOST_DROPPED:
            raise _too_large()
    if size > MOST_BYTES:
        raise _too_large()
    return b"".join(parts)


def _too_large() -> RefusedRequest:
    return RefusedRequest(413, f"The body is larger than {MOST_BYTES // 1024} KB.", headers={"connection": "close"})


API_PREFIX: Final = "/api/v1"
HOME: Final = "/ops/queue"
ANYONE, VIEWER, OPERATOR, ADMIN = Role.ANYONE, Role.VIEWER, Role.OPERATOR, Role.ADMIN
ROLE: Final = "x-role"
ACTS: Final = "x-leaves-a-trace"
ON_EVERY_PAGE: Final = ("said",)  # what the act before has done, in a word of a closed list
MOST_NAMED: Final = 20
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
log = logging.getLogger("outbox.web")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route: its role, and what happens. `acts`: it writes something although it is a GET, so it is guarded as a
    POST is. `takes`: what a page's query string may say. `shows`: its answer holds what is audited each time it is
    shown, so an Idempotency-Key keeps none. `more` goes to the framework."""

    method: str
    path: str
    endpoint: Callable[..., Any]
    role: Role
    more: dict[str, Any] = field(default_factory=dict)
    acts: bool = False
    takes: Collection[str] = ()
    shows: bool = False


def gives(model: type, status: int = 200, text: str = "") -> dict[str, Any]:
    """The answer's shape, for the document alone: answers are written by us, byte for byte."""
    return {"responses": {status: {"model": model, "description": text or "Done."}}, "status_code": status}


class GuardedRoute(APIRoute):
    """A route without a role does not come into being: forgetting one must not open it. A page is answered to HEAD too
    (the server leaves its body out): monitors and link checkers ask that way."""

    def __init__(self, path: str, *, about: Endpoint, include_in_schema: bool, **options: Any) -> None:
        self.about = about
        methods = ["GET", "HEAD"] if about.method == "GET" and not include_in_schema else [about.method]
        given = {"methods": methods, "include_in_schema": include_in_schema, **options, **about.more}
        super().__init__(path, about.endpoint, **given)

    def check_query(self, request: Request) -> None:
        """A name that this address does not know is refused: whoever wrote it means something by it, and a filter that
        is passed over matches everything. The framework does so itself where an endpoint has parameters of its own."""
        if self.about.role is Role.ANYONE or self.dependant.query_params:
            return
        takes = (*self.about.takes, *(() if self.include_in_schema else ON_EVERY_PAGE))
        unknown = [name for name in request.query_params if name not in takes][:MOST_NAMED]
        if unknown:
            raise BadRequest([(name[:80], "is no parameter of this address") for name in unknown])

    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await self._pass(request, inner)
            except Exception as error:
                return problems.error_response(request, _refusal_of(error))

        return handle

    async def _pass(self, request: Request, inner: Handler) -> Response:
        gate: AccessGate = request.app.state.gate
        about, page = self.about, not self.include_in_schema
        person = request.state.person = gate.admit(request, about.role, form=page, acts=about.acts)
        self.check_query(request)
        if request.method in SAFE_METHODS:
            return await inner(request)
        sent = await read_body(request, FORM if page else JSON)
        key = request.headers.get(idempotency.HEADER)
        if key is None or person is None or about.shows:
            return await inner(request)
        kept: idempotency.Kept = request.app.state.kept

        async def act() -> Response:
            try:
                return await inner(request)
            except Exception as error:
                return problems.error_response(request, _refusal_of(error))

        return await kept.once(person.name, request.url.path, key, sent, act)


def _refusal_of(error: Exception) -> RefusedRequest:
    refused = problems.refused_by(error)
    if refused.status == 500:
        log.error("a request failed: %s", type(error).__name__, exc_info=error)
    return refused


def add_endpoints(app: FastAPI, endpoints: Iterable[Endpoint], *, prefix: str = "", api: bool = False) -> None:
    """Add the endpoints to the app. Pages stay out of the OpenAPI document."""
    for each in endpoints:
        told = {ROLE: str(each.role)} | ({ACTS: True} if each.acts else {})
        route = GuardedRoute(prefix + each.path, about=each, openapi_extra=told, include_in_schema=api)
        app.router.routes.append(route)


def _methods(request: Request) -> list[str]:
    """What this address takes, of all endpoints there: the framework names only the first one's."""
    here = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    taken = {method for route in here if isinstance(route, GuardedRoute) for method in route.methods or ()}
    return sorted(taken)


def catch_the_rest(app: FastAPI) -> None:
    """What no endpoint handles: unknown paths, wrong methods, and the framework's own words."""

    async def handle(request: Request, error: Exception) -> Response:
        refused = _refusal_of(error)
        if refused.status == 405:
            refused.headers["allow"] = ", ".join(_methods(request))
        return problems.error_response(request, refused)

    for kind in (HTTPException, RequestValidationError, RefusedRequest, Exception):
        app.add_exception_handler(kind, handle)


ONE_LINE = rf"^[^{CONTROL}]*[^\s{CONTROL}][^{CONTROL}]*$"
_TIME = r"^(\d{1,6}\s*[smhdw]|\d{4}-\d{2}-\d{2}([T ].*)?)$"
FailureType = Literal[FAILURE_TYPES]  # type: ignore[valid-type]


class Strict(BaseModel):
    """A misspelt name is an error: a filter that was not understood would match everything."""

    model_config = ConfigDict(extra="forbid")


class Paged(Strict):
    """Which page of a list."""

    limit: int = Field(50, ge=1, le=500, description="Most rows on the page.")
    cursor: str | None = Field(None, max_length=300, description="`next_cursor` of the page before.")


def _asked(kind: type[EventFilter | AuditFilter], name: str, **limits: Any) -> Any:
    """A parameter, described as the filter describes its field."""
    (text,) = (each.metadata["text"] for each in fields(kind) if each.name == name)
    return Field(None, description=text, **limits)


class EventQuery(Strict):
    """The one event filter."""

    entity_type: str | None = _asked(EventFilter, "entity_type", max_length=LONGEST_VALUE)
    entity_id: str | None = _asked(EventFilter, "entity_id", max_length=LONGEST_VALUE)
    error_reason: str | None = _asked(EventFilter, "error_reason", max_length=LONGEST_VALUE)
    error_code: Code | None = _asked(EventFilter, "error_code")
    dead_reason: DeadReason | None = _asked(EventFilter, "dead_reason")
    failure_type: FailureType | None = _asked(EventFilter, "failure_type")
    fingerprint: str | None = _asked(EventFilter, "fingerprint", pattern=rf"^({FINGERPRINT})$")
    trace_id: str | None = _asked(EventFilter, "trace_id", pattern=rf"^{TRACE_ID}$")
    since: str | None = _asked(EventFilter, "since", max_length=64, pattern=_TIME)
    until: str | None = _asked(EventFilter, "until", max_length=64, pattern=_TIME)


class EventIdsQuery(EventQuery):
    """The same with ids, which a query string repeats."""

    ids: list[UUID] | None = _asked(EventFilter, "ids", max_length=MOST_IDS)


class AuditQuery(Strict):
    """The one audit filter."""

    entity_type: str | None = _asked(AuditFilter, "entity_type", max_length=LONGEST_VALUE)
    entity_id: str | None = _asked(AuditFilter, "entity_id", max_length=LONGEST_VALUE)
    trace_id: str | None = _asked(AuditFilter, "trace_id", pattern=rf"^{TRACE_ID}$")
    action: Action | None = _asked(AuditFilter, "action")
    actor: str | None = _asked(AuditFilter, "actor", max_length=LONGEST_VALUE)
    batch_id: UUID | None = _asked(AuditFilter, "batch_id")
    since: str | None = _asked(AuditFilter, "since", max_length=64, pattern=_TIME)
    until: str | None = _asked(AuditFilter, "until", max_length=64, pattern=_TIME)


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


EVENT_FIELDS = tuple(EventFilter.__dataclass_fields__)
AUDIT_FIELDS = tuple(AuditFilter.__dataclass_fields__)


def event_filter_of(asked: EventQuery) -> EventFilter:
    return read.read_event_filter(asked.model_dump(include={*EVENT_FIELDS}, exclude_none=True), datetime.now(UTC))


def audit_filter_of(asked: AuditQuery) -> AuditFilter:
    return read.read_audit_filter(asked.model_dump(include={*AUDIT_FIELDS}, exclude_none=True), datetime.now(UTC))


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def person(request: Request) -> Person:
    found: Person = request.state.person
    return found


At = Annotated[Services, Depends(services)]
Who = Annotated[Person, Depends(person)]


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
    return read.read_event_filter(raw, datetime.now(UTC))


def audit_filter(values: Any) -> AuditFilter:
    return read.read_audit_filter(raw_filter(values, AUDIT_FIELDS), datetime.now(UTC))


def number(values: Any, name: str, default: int, least: int, most: int) -> int:
    """A page's number is clamped, not refused: an old bookmark should still show something."""
    text = str(values.get(name) or "")
    return max(least, min(int(text), most)) if text.isdecimal() and len(text) < 10 else default


def filter_bar(request: Request, asked: EventFilter, status: QueueStatus) -> dict[str, Any]:
    """The form of the event filter: what was asked for, and what there is to choose from."""
    words = request.query_params
    return {
        "filter_words": {name: words[name] for name in read.given(asked) if name in words},
        "reasons": sorted(filter(None, status.failed_by_reason)),
        "types": sorted(row.entity_type for row in status.by_entity_type),
    }


def event_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise RefusedRequest(404, "An event's id is a uuid; this is none.") from None


@dataclass(frozen=True, slots=True)
class SentForm:
    """A form by which a person acts, and the way back from it."""

    request: Request
    form: FormData

    @property
    def at(self) -> Services:
        return services(self.request)

    @property
    def actor(self) -> Actor:
        """The token's name, or on loopback the name that the person gives."""
        who = person(self.request)
        return read.actor(who.name if who.by_token else self.text("by"), Source.CONSOLE, str(who.role))

    @property
    def reason(self) -> str:
        return self.text("reason")

    def text(self, name: str) -> str:
        return str(self.form.get(name) or "")

    def go(self, to: str, said: str) -> Response:
        """After the act: see other, in a new reading. The name is kept for the next form."""
        self.at.status.forget()
        answer = RedirectResponse(f"{to}{'&' if '?' in to else '?'}said={said}", 303)
        if (by := self.text("by")) and not person(self.request).by_token:
            answer.set_cookie(NAME_COOKIE, quote(by[:120]), max_age=31_536_000, httponly=True, samesite="strict")
        return answer


async def _sent(request: Request) -> SentForm:
    return SentForm(request, await request.form())


Sent = Annotated[SentForm, Depends(_sent)]
