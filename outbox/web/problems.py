"""Owns the error answers: what an error means as a status, an RFC 9457 document, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
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
from outbox.policy.inputs import BadRequest
from outbox.web.templating import render

MEDIA_TYPE: Final = "application/problem+json"


class RefusedRequest(Exception):
    """A request that is answered with a problem document instead of what it asked for."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.status, self.detail = status, detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.more = more
        super().__init__(detail)


class LoginNeeded(RefusedRequest):
    """Pages turn this into the login page; the API says 401."""

    def __init__(self, detail: str) -> None:
        super().__init__(401, detail, headers={"www-authenticate": 'Bearer realm="outbox"'})


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str = Field(description="The field, or where in the request it stood.")
    problem: str = Field(description="Why it is invalid.")


class ProblemDocument(BaseModel):
    """An RFC 9457 problem document: the form of every error."""

    model_config = ConfigDict(title="Problem")

    type: str = Field(description="Always `about:blank`: the status says the kind.")
    title: str = Field(description="The name of the status.")
    status: int = Field(description="The HTTP status again.")
    detail: str = Field(description="What happened this time, and what to do about it.")
    instance: str | None = Field(default=None, description="The path of the request.")
    errors: list[FieldProblem] = Field(default_factory=list, description="Each field that is wrong.")
    state: str | None = Field(default=None, description="With 409: the state it is in.")


def problem_document(refused: RefusedRequest, path: str) -> dict[str, Any]:
    """The body. Detail and errors hold only our own words and shortened input, never a row."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(refused.status).phrase,
        "status": refused.status,
        "detail": refused.detail,
        "instance": path,
    }
    if refused.errors:
        body["errors"] = [{"field": field, "problem": what} for field, what in refused.errors]
    return body | refused.more


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


def refused_by(error: Exception) -> RefusedRequest:
    """What is said about an error. Unknown ones say nothing of themselves: their words may hold anything."""
    match error:
        case RefusedRequest():
            return error
        case BadRequest():
            # A cursor is made by us, so a wrong one was forged or cut: the request itself is broken.
            forged = any(field in CURSORS for field, _ in error.problems)
            return RefusedRequest(400 if forged else 422, "Some fields are invalid.", errors=error.problems)
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            headers = {name.lower(): value for name, value in (error.headers or {}).items()}
            return RefusedRequest(error.status_code, _plain(error), headers=headers)
        case OutboxError():
            return _of_ours(error)
        case _:
            return RefusedRequest(
                500, "Something went wrong here; the console's log says what. Nothing else is affected."
            )


def _of_ours(error: OutboxError) -> RefusedRequest:
    status = next((number for kind, number in _STATUS if isinstance(error, kind)), 409)
    more: dict[str, Any] = {}
    if state := getattr(error, "state", None):
        more["state"] = str(state)
    detail = usage_detail(error) if isinstance(error, UsageError) else error.message
    return RefusedRequest(status, detail, headers=_RETRY if status == 503 else None, **more)


def usage_detail(error: UsageError) -> str:
    """As a sentence, without the text of the class: that one is about a command and its `--help`."""
    return f"{error.detail[:1].upper()}{error.detail[1:]}." if error.detail else "The request is invalid."


def _plain(error: HTTPException) -> str:
    told = {
        404: "There is nothing at this address.",
        405: "This address does not take that method.",
        400: "The request could not be read.",
    }
    return told.get(error.status_code, str(error.detail)[:200])


def _invalid(error: RequestValidationError) -> RefusedRequest:
    """The framework's findings, without the input that it quotes."""
    found = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return RefusedRequest(400, "The body is not JSON.")
    errors = [(_where(each["loc"]), str(each["msg"])[:300]) for each in found[:20]]
    return RefusedRequest(422, "Some fields are invalid.", errors=errors)


def _where(place: tuple[Any, ...]) -> str:
    inner = place[1:] if len(place) > 1 and place[0] in ("body", "query", "path", "header") else place
    return ".".join(str(part)[:80] for part in inner)


def error_response(request: Request, refused: RefusedRequest) -> Response:
    if request.url.path.startswith(API):
        body = orjson.dumps(problem_document(refused, request.url.path))
        return Response(body, refused.status, refused.headers, media_type=MEDIA_TYPE)
    if isinstance(refused, LoginNeeded) and request.method in ("GET", "HEAD"):
        asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{LOGIN}?next={quote(asked, safe='')}", 303)
    page = render(request, "problem.html", status_code=refused.status, refused=refused)
    page.headers.update(refused.headers)
    return page
