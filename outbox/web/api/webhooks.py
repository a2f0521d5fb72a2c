"""Webhook deliveries over HTTP: what was sent, and once more."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from outbox.web.api.answering import answer
from outbox.web.api.asking import ONE_LINE, Act, At, Strict, Who, actor


class ListQuery(Strict):
    limit: int = Field(50, ge=1, le=500, description="Most deliveries on the page.")
    cursor: str | None = Field(None, max_length=300, description="`next_cursor` of the page before.")


class RedeliverBody(Act):
    """Who asks; a reason is welcome."""

    reason: str | None = Field(  # type: ignore[assignment]
        None, min_length=1, max_length=1000, pattern=ONE_LINE, description="Why; one line, kept in the audit."
    )


def list_deliveries(asked: Annotated[ListQuery, Query()], at: At) -> Response:
    """Deliveries, the newest first. Addresses are named by host and a key: a path is often a secret."""
    found = at.webhooks.page(asked.cursor, asked.limit)
    return answer({"deliveries": found.deliveries, "next_cursor": found.next_cursor})


def redeliver(id: UUID, body: RedeliverBody, at: At, who: Who) -> Response:
    """Send one again, also where its address is disabled; success enables it again. The next daemon sends it."""
    at.webhooks.redeliver(id, actor(who, body), body.reason)
    return answer({"id": id, "queued": True}, 202)
