"""Owns the error answers of the API: RFC 9457 problem documents. It decides no status of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

MEDIA_TYPE: Final = "application/problem+json"


class Refused(Exception):
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


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str = Field(description="The field, or where in the request it stood.")
    problem: str = Field(description="Why it cannot be meant.")


class Problem(BaseModel):
    """An RFC 9457 problem document: what every error looks like."""

    type: str = Field(description="Always `about:blank`: the status says the kind.")
    title: str = Field(description="The name of the status.")
    status: int = Field(description="The HTTP status again.")
    detail: str = Field(description="What happened this time, and what to do about it.")
    instance: str | None = Field(default=None, description="The path that was asked.")
    errors: list[FieldProblem] = Field(default_factory=list, description="Each field that is wrong.")
    state: str | None = Field(default=None, description="With 409: the state it is in.")


def document(refused: Refused, path: str) -> dict[str, Any]:
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


def answer(refused: Refused, path: str) -> Response:
    body = orjson.dumps(document(refused, path))
    return Response(body, refused.status, refused.headers, media_type=MEDIA_TYPE)
