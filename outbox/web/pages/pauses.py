"""Pausing and resuming from the first page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from outbox.web.pages import asking


def pause(request: Request, form: asking.Sent) -> Response:
    at, by = asking.services(request), str(form.get("by") or "")
    kind = str(form.get("entity_type") or "").strip() or None
    at.pauses.pause(asking.actor(request, by), str(form.get("reason") or ""), kind)
    at.status.forget()
    return asking.go(request, "/ops/queue", "paused", by)


def resume(request: Request, form: asking.Sent) -> Response:
    at, by = asking.services(request), str(form.get("by") or "")
    scope = str(form.get("scope") or "*")
    kind = scope.removeprefix("type:") if scope.startswith("type:") else None
    at.pauses.resume(asking.actor(request, by), str(form.get("reason") or ""), kind)
    at.status.forget()
    return asking.go(request, "/ops/queue", "resumed", by)
