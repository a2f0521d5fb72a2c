"""Turns whatever went wrong into an answer: a problem document for programs, a page for people. It raises nothing."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outbox.errors import (
    ConfigurationError,
    Conflict,
    DependencyDown,
    NotFound,
    NotPermitted,
    OutboxError,
    SchemaMismatch,
    UsageError,
)
from outbox.ops.inputs import BadRequest
from outbox.policy.filter import BadFilter
from outbox.web import problems
from outbox.web.auth.gate import LoginNeeded
from outbox.web.problems import Refused
from outbox.web.templating import render

API: Final = "/api/"
CURSORS: Final = ("cursor",)
LOGIN: Final = "/ops/queue/login"
_RETRY: Final = {"retry-after": "5"}
_STATUS: Final[tuple[tuple[type[OutboxError], int], ...]] = (
    (NotFound, 404),
    (Conflict, 409),
    (UsageError, 422),
    (NotPermitted, 403),
    (SchemaMismatch, 503),
    (DependencyDown, 503),
    (ConfigurationError, 409),
)


def of(error: Exception) -> Refused:
    """What is said about an error. Unknown ones say nothing of themselves: their words may hold anything."""
    match error:
        case Refused():
            return error
        case BadRequest() | BadFilter():
            return _bad(error.problems)
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            headers = {name.lower(): value for name, value in (error.headers or {}).items()}
            return Refused(error.status_code, _plain(error), headers=headers)
        case OutboxError():
            return _of_ours(error)
        case _:
            return Refused(500, "Something went wrong here; the console's log says what. Nothing else is affected.")


def _bad(problems: tuple[tuple[str, str], ...]) -> Refused:
    """A cursor is made by us, so a wrong one was forged or cut: 400, the request itself is broken."""
    forged = any(field in CURSORS for field, _ in problems)
    return Refused(400 if forged else 422, "Some fields cannot be meant.", errors=problems)


def _of_ours(error: OutboxError) -> Refused:
    status = next((number for kind, number in _STATUS if isinstance(error, kind)), 409)
    more: dict[str, Any] = {}
    if state := getattr(error, "state", None):
        more["state"] = str(state)
    return Refused(status, error.message, headers=_RETRY if status == 503 else None, **more)


def _plain(error: HTTPException) -> str:
    told = {
        404: "There is nothing at this address.",
        405: "This address does not take that method.",
        400: "The request could not be read.",
    }
    return told.get(error.status_code, str(error.detail)[:200])


def _invalid(error: RequestValidationError) -> Refused:
    """The framework's findings, without the input that it quotes."""
    found = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return Refused(400, "The body is not JSON.")
    errors = [(_where(each["loc"]), str(each["msg"])[:300]) for each in found[:20]]
    return Refused(422, "Some fields cannot be meant.", errors=errors)


def _where(place: tuple[Any, ...]) -> str:
    inner = place[1:] if len(place) > 1 and place[0] in ("body", "query", "path", "header") else place
    return ".".join(str(part)[:80] for part in inner)


def answer(request: Request, refused: Refused) -> Response:
    if request.url.path.startswith(API):
        return problems.answer(refused, request.url.path)
    if isinstance(refused, LoginNeeded) and request.method in ("GET", "HEAD"):
        asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{LOGIN}?next={quote(asked, safe='')}", 303)
    page = render(request, "problem.html", status_code=refused.status, refused=refused)
    page.headers.update(refused.headers)
    return page
