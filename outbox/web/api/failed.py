"""Failed events over HTTP: list, groups, preview, replay by filter or ids, flush."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from outbox.ops.replay.desk import ReplayRequest
from outbox.ops.replay.plan import Plan
from outbox.policy.filter import MOST_IDS
from outbox.policy.replay import MOST_ROWS
from outbox.web.api import events
from outbox.web.api.answering import answer
from outbox.web.api.asking import (
    ONE_LINE,
    Act,
    At,
    EventIdsQuery,
    EventQuery,
    Who,
    actor,
    capped,
    client_id,
    event_filter,
)
from outbox.web.api.replays import resource

PAGE_SIZE = 50


class ListQuery(EventIdsQuery):
    limit: int = Field(50, ge=1, le=500, description="Most events on the page.")
    cursor: str | None = Field(None, max_length=300, description="`next_cursor` of the page before.")


class GroupQuery(EventQuery):
    limit: int = Field(50, ge=1, le=100, description="Most groups.")


class PreviewQuery(EventIdsQuery):
    page: int = Field(1, ge=1, le=2_000, description="Which page, from 1.")
    page_size: int = Field(PAGE_SIZE, ge=1, le=500, description="Events on a page.")


class ReplayBody(Act, EventQuery):
    """The filter, how many, who and why."""

    reason: str | None = Field(  # type: ignore[assignment]
        None, min_length=1, max_length=1000, pattern=ONE_LINE, description="Why; needed unless `dry_run`."
    )
    ids: list[UUID] | None = Field(None, max_length=MOST_IDS, description="Exactly these events.")
    limit: int | None = Field(
        None, ge=1, le=MOST_ROWS, description="Most events that move: the number of ids where they are given, else 100."
    )
    dry_run: bool = Field(False, description="Only say what would happen; nothing is written.")
    rate: float | None = Field(None, ge=0.01, le=100_000, description="Events a second; 1,000 if none.")
    webhook_url: str | None = Field(
        None, max_length=2000, description="Told when it settles; its host must be allowed."
    )


class FlushBody(Act, EventQuery):
    """The filter, how many are expected, who and who else."""

    ids: list[UUID] | None = Field(None, max_length=MOST_IDS, description="Exactly these events.")
    expect: int = Field(ge=1, le=100_000, description="Nothing happens unless exactly so many match.")
    approved_by: str = Field(
        min_length=1, max_length=120, pattern=ONE_LINE, description="A second person, who is not `by`."
    )


def list_failed(asked: Annotated[ListQuery, Query()], at: At) -> Response:
    """Failed events, the newest first."""
    return answer(events.listing(events.page(at, event_filter(asked), ["failed"], asked.limit, asked.cursor)))


def groups(asked: Annotated[GroupQuery, Query()], at: At) -> Response:
    """Failed events by fingerprint: failures that look alike are one group."""
    wanted = event_filter(asked)
    found = at.groups().value[: asked.limit] if wanted.is_empty else at.failures.groups(wanted, asked.limit)
    return answer({"groups": found})


def preview(asked: Annotated[PreviewQuery, Query()], at: At) -> Response:
    """What a replay with this filter would take, in its order. No side effect."""
    found = at.failures.preview(event_filter(asked), asked.page, asked.page_size)
    return answer(
        {
            "events": found.rows,
            "page": asked.page,
            "page_size": asked.page_size,
            **capped(found.total),
        }
    )


def replay(body: ReplayBody, at: At, who: Who, request: Request) -> Response:
    """Replay failed events: by filter the longest failed first, or exactly these ids. 202 and the replay to follow."""
    asked = event_filter(body)
    if body.dry_run:
        return answer(planned(at.planner.plan(asked, body.limit)))
    created = at.replays.create(
        ReplayRequest(
            actor=actor(who, body),
            reason=body.reason or "",
            filter=asked,
            limit=body.limit,
            rate=body.rate,
            webhook_url=body.webhook_url,
            client_id=client_id(request, who),
        )
    )
    at.dispatching.start(created)
    at.status.forget()
    where = {"location": f"/api/v1/replays/{created.batch.id}"}
    return answer(resource(created.batch), 202, where)


def planned(plan: Plan) -> dict[str, Any]:
    shown = (
        "filter", "total", "by_entity_type", "by_error_reason", "by_fingerprint", "skipped", "oldest", "newest",
        "superseded", "compared",
    )  # fmt: skip
    sample = [{name: value for name, value in row.items() if name != "routing"} for row in plan.sample]
    return {"dry_run": True, **{name: getattr(plan, name) for name in shown}, **capped(plan.matched), "sample": sample}


def flush(body: FlushBody, at: At, who: Who) -> Response:
    """Discard all failed events that match, if they are exactly as many as expected and a second person agrees."""
    done = at.discards.flush(event_filter(body), body.expect, actor(who, body), body.reason, body.approved_by)
    at.status.forget()
    return answer(done)
