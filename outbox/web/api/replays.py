"""Replays over HTTP: list, one with what did not become done, cancel."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from outbox.policy.replay import ReplayBatch
from outbox.web.api.answering import answer
from outbox.web.api.asking import Act, At, Strict, Who, actor


class ListQuery(Strict):
    live: bool = Field(False, description="Only those that are not over.")
    limit: int = Field(50, ge=1, le=500, description="Most replays on the page.")
    cursor: str | None = Field(None, max_length=300, description="`next_cursor` of the page before.")


def resource(batch: ReplayBatch) -> dict[str, Any]:
    """As people may see it: of a webhook's address only the host, and nothing of who holds its lease."""
    told = asdict(batch)
    for hidden in ("webhook_url", "client_id"):
        told.pop(hidden)
    to = told.pop("webhook_to")
    return {**told, "webhook_host": to.rpartition("#")[0] if to else None}


def list_replays(asked: Annotated[ListQuery, Query()], at: At) -> Response:
    """Replays, the newest first."""
    found = at.replays.page(asked.cursor, asked.limit, live=asked.live)
    return answer({"replays": [resource(batch) for batch in found.replays], "next_cursor": found.next_cursor})


def get_replay(id: UUID, at: At) -> Response:
    """One replay, and its events that did not simply become done."""
    found = at.replays.show(id)
    return answer({**resource(found.batch), "items": found.items})


def cancel_replay(id: UUID, act: Act, at: At, who: Who) -> Response:
    """Stop a replay; what has moved stays moved. 409 when it is over."""
    at.replays.get(id)
    return answer(resource(at.replays.cancel(id, actor(who, act), act.reason)))
