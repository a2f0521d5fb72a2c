"""Builds the console: doors, gate, headers, static files. It starts no server and opens no connection."""

from __future__ import annotations

import json

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.staticfiles import StaticFiles

from outbox import __version__
from outbox.config import Settings
from outbox.web import doors, routes
from outbox.web.auth.gate import Gate
from outbox.web.auth.pace import Pace
from outbox.web.auth.tokens import TokenFile
from outbox.web.crowd import Crowd
from outbox.web.headers import HeadAsGet, SecurityHeaders
from outbox.web.idempotency import Kept
from outbox.web.openapi import describe
from outbox.web.plans import Plans
from outbox.web.services import Services
from outbox.web.templating import STATIC

DESCRIPTION = """Operate the outbox: see, group, understand, replay and account for failures.

Every error is an RFC 9457 problem document. Every POST takes an `Idempotency-Key`. Lists page by a `cursor` that the
page before named. `x-role` says who may: viewer, operator or admin."""


def build(settings: Settings, services: Services, *, pace: Pace | None = None) -> FastAPI:
    """The whole app. Refuses an address that strangers could reach without a token."""
    settings.check_console()
    tokens = TokenFile(settings.console.tokens_file) if settings.console.tokens_file else None
    if tokens is not None:
        tokens.check()
    app = doors_only()
    app.state.gate = Gate(tokens, pace)
    app.state.services = services
    app.state.settings = settings
    app.state.projection = settings.projection
    app.state.kept = Kept()
    app.state.plans = Plans()
    return app


def doors_only() -> FastAPI:
    """Every door, and nothing behind it: enough for the OpenAPI document."""
    app = FastAPI(
        title="Outbox",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        middleware=[Middleware(SecurityHeaders), Middleware(HeadAsGet), Middleware(Crowd)],
    )
    doors.hang(app, routes.PAGES)
    doors.hang(app, routes.API, prefix=routes.API_PREFIX, api=True)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    doors.catch_the_rest(app)
    describe(app)
    return app


def document() -> str:
    """The OpenAPI document as it is checked in (docs/openapi.json)."""
    return json.dumps(doors_only().openapi(), indent=2) + "\n"
