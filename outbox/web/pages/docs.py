"""The API's own page, made from its OpenAPI document: no script, nothing from elsewhere."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from outbox.web.templating import render


def openapi_document(request: Request) -> Response:
    """This document."""
    return JSONResponse(request.app.openapi())


def docs_page(request: Request) -> Response:
    document = request.app.openapi()
    operations = [
        {"method": method.upper(), "path": path, **_told(operation, document)}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return render(request, "docs.html", document=document, operations=operations)


def _told(operation: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return {
        "id": operation["operationId"],
        "summary": operation.get("description") or operation.get("summary", ""),
        "role": operation["x-role"],
        "parameters": operation.get("parameters", []),
        "fields": _fields(body, document) if body else [],
        "responses": {status: told["description"] for status, told in operation["responses"].items()},
    }


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[dict[str, Any]]:
    found = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    required = found.get("required", [])
    return [
        {"name": name, "description": field.get("description", ""), "required": name in required}
        for name, field in found.get("properties", {}).items()
    ]
