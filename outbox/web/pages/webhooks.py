"""Webhook deliveries: what was sent, what came back, and once more; page and API."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from outbox.policy.redact import redact_address
from outbox.web import answers, routing
from outbox.web.answers import answer
from outbox.web.routing import HOME, ONE_LINE, OPERATOR, VIEWER, Act, At, Endpoint, Paged, Who, actor_of, gives
from outbox.web.templating import render


class RedeliverBody(Act):
    """Who requests it; a reason is optional."""

    reason: str | None = Field(  # type: ignore[assignment]
        None, min_length=1, max_length=1000, pattern=ONE_LINE, description="Why; one line, kept in the audit."
    )


def list_deliveries(asked: Annotated[Paged, Query()], at: At) -> Response:
    """Deliveries, the newest first. Addresses are named by host and a key: a path is often a secret."""
    found = at.webhooks.page(asked.cursor, asked.limit)
    return answer({"deliveries": found.deliveries, "next_cursor": found.next_cursor})


def redeliver(id: UUID, body: RedeliverBody, at: At, who: Who) -> Response:
    """Send one again, also where its address is disabled; success enables it again. The next daemon sends it."""
    at.webhooks.redeliver(id, actor_of(who, body), body.reason)
    return answer({"id": id, "queued": True}, 202)


PAGE_ROWS: Final = 50


def webhooks_page(request: Request) -> Response:
    found = routing.services(request).webhooks.page(request.query_params.get("cursor"), PAGE_ROWS)
    settings = request.app.state.settings.webhook
    return render(
        request,
        "webhooks.html",
        page=found,
        url=redact_address(str(settings.url)) if settings.url else "",
        signed=settings.secret is not None,
        settings=settings,
    )


def redeliver_form(id: str, sent: routing.Sent) -> Response:
    sent.at.webhooks.redeliver(routing.event_id(id), sent.actor, sent.reason or None)
    return sent.go("/ops/queue/webhooks", "redelivered")


PAGES: Final = (
    Endpoint("GET", f"{HOME}/webhooks", webhooks_page, VIEWER, takes=("cursor",)),
    Endpoint("POST", f"{HOME}/webhooks/{{id}}/redeliver", redeliver_form, OPERATOR),
)
API: Final = (
    Endpoint("GET", "/webhooks/deliveries", list_deliveries, VIEWER, gives(answers.DeliveryList)),
    Endpoint("POST", "/webhooks/deliveries/{id}/redeliver", redeliver, OPERATOR, gives(answers.Redelivered, 202)),
)
