"""The route table: every door of the console, and who may go through it. What happens behind one is not here."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from outbox.web.auth.roles import Role
from outbox.web.doors import Door
from outbox.web.pages import event, events, login, overview, system

API_PREFIX: Final = "/api/v1"
HOME: Final = "/ops/queue"


def home(request: Request) -> Response:
    return RedirectResponse(HOME, 307)


def healthz(request: Request) -> Response:
    """The process answers; it asks neither PostgreSQL nor Elasticsearch."""
    return PlainTextResponse("ok\n")


PAGES: Final = (
    Door("GET", "/", home, Role.ANYONE),
    Door("GET", "/healthz", healthz, Role.ANYONE),
    Door("GET", f"{HOME}/login", login.login_page, Role.ANYONE),
    Door("POST", f"{HOME}/login", login.login, Role.ANYONE),
    Door("POST", f"{HOME}/logout", login.logout, Role.ANYONE),
    Door("GET", HOME, overview.overview, Role.VIEWER),
    Door("GET", f"{HOME}/failures/list", events.failed_list, Role.VIEWER),
    Door("GET", f"{HOME}/events", events.events_page, Role.VIEWER),
    Door("GET", f"{HOME}/events/{{id}}", event.event_page, Role.VIEWER),
    Door("POST", f"{HOME}/events/{{id}}/unmask", event.unmask, Role.ADMIN),
    Door("GET", f"{HOME}/system", system.system_page, Role.VIEWER),
    Door("GET", f"{HOME}/runbook", system.runbook_page, Role.VIEWER),
)

API: Final[tuple[Door, ...]] = ()
