"""Builds the console: endpoints, access, headers, static files, the OpenAPI document. Starts no server."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

import structlog
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from outbox import __version__
from outbox.config import Settings
from outbox.facts import Announcer
from outbox.telemetry.access import AccessCounter
from outbox.telemetry.log_lines import LogSubscriber
from outbox.telemetry.metrics import new_registry
from outbox.web import routing
from outbox.web.auth import AccessGate, RateLimits, Role, TokenFile
from outbox.web.console_server import Crowd, SecurityHeaders
from outbox.web.idempotency import Kept
from outbox.web.pages import audit, event, events, failures, login, overview, pauses, replays, system, webhooks
from outbox.web.pages.replays import Plans
from outbox.web.problems import MEDIA_TYPE, ProblemDocument
from outbox.web.routing import ANYONE, API_PREFIX, HOME, ROLE, Endpoint
from outbox.web.services import Services
from outbox.web.templating import STATIC


async def home(request: Request) -> Response:
    return RedirectResponse(HOME, 307)


async def healthz(request: Request) -> Response:
    """The process answers; it asks neither PostgreSQL nor Elasticsearch, and waits for no thread."""
    return PlainTextResponse("ok\n")


def metrics(request: Request) -> Response:
    """Counts without names, and the process's own figures."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)


PAGES: Final = (
    Endpoint("GET", "/", home, ANYONE),
    Endpoint("GET", "/healthz", healthz, ANYONE),
    Endpoint("GET", "/metrics", metrics, ANYONE),
    *login.PAGES,
    *overview.PAGES,
    *pauses.PAGES,
    *failures.PAGES,
    *events.PAGES,
    *event.PAGES,
    *replays.PAGES,
    *audit.PAGES,
    *webhooks.PAGES,
    *system.PAGES,
)
API: Final = (
    *overview.API,
    *events.API,
    *failures.API,
    *replays.API,
    *pauses.API,
    *audit.API,
    *webhooks.API,
)


DESCRIPTION = """Operate the outbox: see, group, understand, replay and account for failures.

Every error is an RFC 9457 problem document. Every POST takes an `Idempotency-Key`. Lists page by a `cursor` that the
page before named. `x-role` is the role that is needed: viewer, operator or admin."""


def build(settings: Settings, services: Services, *, pace: RateLimits | None = None) -> FastAPI:
    """The whole app. Refuses an address that others could reach without a token."""
    settings.check_console()
    tokens = TokenFile(settings.console.tokens_file) if settings.console.tokens_file else None
    if tokens is not None:
        tokens.check()
    app = endpoints_only()
    app.state.registry = new_registry()
    announce = Announcer()
    announce.subscribe(AccessCounter(settings.projection, app.state.registry).handle)
    announce.subscribe(LogSubscriber(structlog.get_logger()).handle)
    app.state.gate = AccessGate(tokens, pace, announce)
    app.state.services = services
    app.state.settings = settings
    app.state.projection = settings.projection
    app.state.kept = Kept()
    app.state.plans = Plans()
    return app


def endpoints_only() -> FastAPI:
    """Every endpoint without its services: enough for the OpenAPI document."""
    app = FastAPI(
        title="Outbox",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        middleware=[Middleware(SecurityHeaders), Middleware(Crowd)],
    )
    routing.add_endpoints(app, PAGES)
    routing.add_endpoints(app, API, prefix=API_PREFIX, api=True)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    routing.catch_the_rest(app)
    describe(app)
    return app


def document() -> str:
    """The OpenAPI document as it is checked in (docs/openapi.json)."""
    return json.dumps(endpoints_only().openapi(), indent=2) + "\n"


_PROBLEM: Final = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ALWAYS: Final = {
    "400": "The request is broken: not JSON, or a cursor that is not ours.",
    "401": "No token, or one that is not known.",
    "403": "The role does not allow it, or the request came from another site.",
    "429": "Too many requests.",
    "503": "The database does not answer, or not in time.",
}
_WITH_PARAMETERS: Final = {"422": "Some fields are invalid."}
_WITH_BODY: Final = {
    "408": "The body did not arrive in time.",
    "409": "It is not in a state that allows this.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "Some fields are invalid.",
}
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same body does nothing twice and gets the same answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[\x21-\x7e]+$"},
}


def describe(app: FastAPI) -> None:
    """Made once, when it is first asked for."""
    app.openapi = cache(lambda: _finished(app))  # type: ignore[method-assign]


def _finished(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, summary=None
    )
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {**problem.pop("$defs"), "Problem": problem}
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _finish(path, method, operation)
    return dict(document)


def _finish(path: str, method: str, operation: dict[str, Any]) -> None:
    role = operation[ROLE]
    operation["security"] = [] if role == Role.ANYONE else [{"token": []}, {}]
    answers = dict(_ALWAYS)
    if method == "post":
        operation.setdefault("parameters", []).append(_KEY)
        answers |= _WITH_BODY
    if operation.get("parameters"):
        answers |= _WITH_PARAMETERS
    if "{" in path:
        answers |= {"404": "There is no such thing."}
    responses = operation["responses"]
    responses.pop("422", None)
    for status, text in answers.items():
        responses.setdefault(status, {"description": text})
    for status, response in responses.items():
        if int(status) >= 400:
            response["content"] = _PROBLEM
    operation["responses"] = dict(sorted(responses.items()))
