"""Finishes the OpenAPI document: bearer tokens, problem documents for every error, nothing of the framework's own."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from outbox.web.auth.roles import Role
from outbox.web.doors import ROLE
from outbox.web.problems import MEDIA_TYPE, Problem

_PROBLEM: Final = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ALWAYS: Final = {
    "400": "The request is broken: not JSON, or a cursor that is not ours.",
    "401": "No token, or one that is not known.",
    "403": "The role does not allow it, or the request came from another site.",
    "429": "Too many requests.",
    "503": "The database does not answer, or not in time.",
}
_WITH_PARAMETERS: Final = {"422": "Some fields cannot be meant."}
_WITH_BODY: Final = {
    "408": "The body did not arrive in time.",
    "409": "It is not in a state that allows this.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "Some fields cannot be meant.",
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
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(_finished(app))
        return made

    app.openapi = openapi  # type: ignore[method-assign]


def _finished(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, summary=None
    )
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas |= _problem_schemas()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _finish(path, method, operation)
    return dict(document)


def _problem_schemas() -> dict[str, Any]:
    told = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**told.pop("$defs"), "Problem": told}


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
    for status, told in answers.items():
        responses.setdefault(status, {"description": told})
    for status, response in responses.items():
        if int(status) >= 400:
            response["content"] = _PROBLEM
    operation["responses"] = dict(sorted(responses.items()))
