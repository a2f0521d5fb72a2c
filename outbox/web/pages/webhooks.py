"""Webhook deliveries: what was sent, what came back, and once more."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from outbox.config import redact_address
from outbox.web.auth.roles import Role
from outbox.web.pages import asking
from outbox.web.templating import render

PAGE_ROWS: Final = 50


def webhooks_page(request: Request) -> Response:
    found = asking.services(request).webhooks.page(request.query_params.get("cursor"), PAGE_ROWS)
    settings = request.app.state.settings.webhook
    return render(
        request,
        "webhooks.html",
        page=found,
        url=redact_address(str(settings.url)) if settings.url else "",
        signed=settings.secret is not None,
        settings=settings,
        may_act=asking.person(request).role.allows(Role.OPERATOR),
        said_by=asking.said_by(request),
    )


def redeliver(request: Request, id: str, form: asking.Sent) -> Response:
    by, reason = str(form.get("by") or ""), str(form.get("reason") or "") or None
    asking.services(request).webhooks.redeliver(asking.event_id(id), asking.actor(request, by), reason)
    return asking.go(request, "/ops/queue/webhooks", "redelivered", by)
