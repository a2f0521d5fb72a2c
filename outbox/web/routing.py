"""Owns how an endpoint becomes a route: it names its role, access comes first, then the body within its limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from outbox.ops.inputs import BadRequest
from outbox.web import idempotency, middleware, problems
from outbox.web.auth.accounts import Role
from outbox.web.auth.gate import SAFE_METHODS, AccessGate
from outbox.web.problems import RefusedRequest

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
    if body:
        _check_type(request, accepted)
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


def _check_type(request: Request, accepted: str) -> None:
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != accepted:
        raise RefusedRequest(415, f"Send {accepted}, not {said[:80] or 'a body without a content type'}.")


def _too_large() -> RefusedRequest:
    return RefusedRequest(413, f"The body is larger than {MOST_BYTES // 1024} KB.", headers={"connection": "close"})


API_PREFIX: Final = "/api/v1"
HOME: Final = "/ops/queue"
ANYONE, VIEWER, OPERATOR, ADMIN = Role.ANYONE, Role.VIEWER, Role.OPERATOR, Role.ADMIN
ROLE: Final = "x-role"
ACTS: Final = "x-leaves-a-trace"
TAKES: Final = "x-takes"
SHOWS: Final = "x-shows"
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
    """A route without a role does not come into being: forgetting one must not open it."""

    @property
    def role(self) -> Role:
        return Role((self.openapi_extra or {})[ROLE])

    @property
    def keeps(self) -> bool:
        return not (self.openapi_extra or {}).get(SHOWS)

    def check_query(self, request: Request) -> None:
        """A name that this address does not know is refused: whoever wrote it means something by it, and a filter that
        is passed over matches everything. The framework does so itself where an endpoint has parameters of its own."""
        if self.role is Role.ANYONE or self.dependant.query_params:
            return
        takes = (*(self.openapi_extra or {}).get(TAKES, ()), *(() if self.include_in_schema else ON_EVERY_PAGE))
        unknown = [name for name in request.query_params if name not in takes][:MOST_NAMED]
        if unknown:
            raise BadRequest([(name[:80], "is no parameter of this address") for name in unknown])

    def get_route_handler(self) -> Handler:
        inner, role, acts = super().get_route_handler(), self.role, ACTS in (self.openapi_extra or {})
        page = not self.include_in_schema
        accepted = FORM if page else JSON

        async def handle(request: Request) -> Response:
            try:
                return await self._pass(request, inner, role, accepted, acts)
            except Exception as error:
                return problems.error_response(request, _refusal_of(error))

        return handle

    async def _pass(self, request: Request, inner: Handler, role: Role, accepted: str, acts: bool) -> Response:
        gate: AccessGate = request.app.state.gate
        person = request.state.person = gate.admit(request, role, form=accepted == FORM, acts=acts)
        if acts and middleware.asked_by_head(request.scope):
            raise RefusedRequest(405, "HEAD would leave the trace of a GET; send that.", headers={"allow": "GET"})
        self.check_query(request)
        if request.method in SAFE_METHODS:
            return await inner(request)
        sent = await read_body(request, accepted)
        key = request.headers.get(idempotency.HEADER)
        if key is None or person is None or not self.keeps:
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
    for endpoint in endpoints:
        about: dict[str, Any] = {ROLE: str(endpoint.role)} | ({ACTS: True} if endpoint.acts else {})
        about |= {SHOWS: True} if endpoint.shows else {}
        about |= {} if api else {TAKES: tuple(endpoint.takes)}
        more = {"openapi_extra": about, "include_in_schema": api, **endpoint.more}
        app.router.add_api_route(
            prefix + endpoint.path,
            endpoint.endpoint,
            methods=[endpoint.method],
            route_class_override=GuardedRoute,
            **more,
        )


def _methods(request: Request) -> list[str]:
    """What this address takes, of all endpoints there: the framework names only the first one's."""
    here = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    taken = {method for route in here if isinstance(route, GuardedRoute) for method in route.methods or ()}
    return sorted(taken | ({"HEAD"} if "GET" in taken else set()))


def catch_the_rest(app: FastAPI) -> None:
    """What no endpoint handles: unknown paths, wrong methods, and the framework's own words."""

    async def handle(request: Request, error: Exception) -> Response:
        refused = _refusal_of(error)
        if refused.status == 405:
            refused.headers["allow"] = ", ".join(_methods(request))
        return problems.error_response(request, refused)

    for kind in (HTTPException, RequestValidationError, RefusedRequest, Exception):
        app.add_exception_handler(kind, handle)
