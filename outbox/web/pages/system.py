"""The installation: settings without secrets, health, the runbook, the API's own page, the last verification."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from outbox.ops.status import in_fanouts
from outbox.policy.drift import DRIFT, Kind
from outbox.policy.reindex import Rebuild
from outbox.ports import Level
from outbox.web import routing, templating
from outbox.web.routing import API_PREFIX, HOME, VIEWER, Endpoint
from outbox.web.runbook import RUNBOOK
from outbox.web.templating import render

_ORDER = (Level.BAD, Level.WARN, Level.UNKNOWN, Level.OK)


def system_page(request: Request) -> Response:
    at = routing.services(request)
    reading = at.status()
    settings = request.app.state.settings
    return render(
        request,
        "system.html",
        reading=reading,
        status=reading.value.status,
        fanouts=in_fanouts(reading.value.status.fanouts),
        settings=[(name, told["value"], told["source"]) for name, told in settings.redacted().items()],
        python=platform.python_version(),
        findings=sorted(at.findings().value, key=lambda found: _ORDER.index(found.level)),
        tokens_file=settings.console.tokens_file is not None,
    )


def runbook_page(request: Request) -> Response:
    return render(request, "runbook.html", runbook=RUNBOOK)


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


RESULTS: Final = 20
MEANING: Final = {
    Kind.MISSING: "in PostgreSQL, not in the index",
    Kind.STALE: "an older version in the index",
    Kind.ORPHANED: "in the index, not in PostgreSQL",
    Kind.DIFFERENT: "other content at this version",
    Kind.UNKNOWN: "unknown to PostgreSQL; left alone",
}


def verify_page(request: Request) -> Response:
    at = routing.services(request)
    results = at.verifications(RESULTS)
    last = next((row for row in results if row["status"] == "finished"), None)
    running = next((row for row in results[:1] if row["status"] == "running"), None)
    rebuilds = at.rebuilds(5)
    return render(
        request,
        "verify.html",
        results=results,
        last=last,
        running=running,
        drift=drift(last),
        doubt=doubt(last),
        found=[(kind, each) for kind in Kind for each in _first(last).get(kind, ())],
        meaning=MEANING,
        rebuild=rebuilds[0] if rebuilds else None,
        share=copied_share(rebuilds[0]) if rebuilds else None,
    )


def _first(row: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What the report names. Only names of fields, never their values."""
    report: Mapping[str, Any] = (row or {}).get("report") or {}
    first: Mapping[str, Any] = report.get("first", {})
    return first


def drift(row: Mapping[str, Any] | None) -> int:
    return 0 if row is None else sum(row[kind] for kind in DRIFT)


def doubt(row: Mapping[str, Any] | None) -> str:
    """What could not be judged, in words; the command exits with 3 then."""
    told = {"unknown": "unknown to PostgreSQL", "unreadable": "unreadable there", "in_flux": "still changing"}
    return ", ".join(f"{templating.count(row[name])} {text}" for name, text in told.items() if row and row[name])


def copied_share(rebuild: Rebuild) -> str:
    total = max(rebuild.total or 0, rebuild.written)
    return f"{templating.count(rebuild.written)} of about {templating.count(total)}" if total else "nothing yet"


PAGES: Final = (
    Endpoint("GET", "/ops/verify", verify_page, VIEWER),
    Endpoint("GET", f"{HOME}/system", system_page, VIEWER),
    Endpoint("GET", f"{HOME}/runbook", runbook_page, VIEWER),
    Endpoint("GET", f"{API_PREFIX}/docs", docs_page, VIEWER),
    Endpoint("GET", f"{API_PREFIX}/openapi.json", openapi_document, VIEWER),
)
