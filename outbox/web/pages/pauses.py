"""Pausing and resuming from the first page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from outbox.ops import inputs as read
from outbox.web.pages import asking


def pause(request: Request, form: asking.Sent) -> Response:
    at, by = asking.services(request), str(form.get("by") or "")
    said = str(form.get("entity_type") or "").strip()
    kind = read.line("entity_type", said, 200) if said else None
    at.pauses.pause(asking.actor(request, by), str(form.get("reason") or ""), kind)
    at.status.forget()
    return asking.go(request, "/ops/queue", "paused", by)


def resume(request: Request, form: asking.Sent) -> Response:
    at, by = asking.services(request), str(form.get("by") or "")
    scope = str(form.get("scope") or "*")
    kind = read.line("scope", scope.removeprefix("type:"), 200) if scope.startswith("type:") else None
    at.pauses.resume(asking.actor(request, by), str(form.get("reason") or ""), kind)
    at.status.forget()
    return asking.go(request, "/ops/queue", "resumed", by)
