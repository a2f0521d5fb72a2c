"""Failures: the page of groups and charts; the API to list, group, preview, replay and flush failed events."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from outbox.ops.discard import Flushed
from outbox.ops.failures import Stats
from outbox.ops.replay.desk import ReplayRequest
from outbox.ops.replay.plan import Plan
from outbox.policy.inputs import FAILURE_TYPES, MOST_IDS
from outbox.policy.replay import MOST_ROWS
from outbox.web import answers, routing, templating
from outbox.web.answers import answer
from outbox.web.pages import events
from outbox.web.pages.replays import resource
from outbox.web.routing import (
    ADMIN,
    HOME,
    ONE_LINE,
    OPERATOR,
    VIEWER,
    Act,
    At,
    Endpoint,
    EventIdsQuery,
    EventQuery,
    Paged,
    Who,
    actor_of,
    capped,
    client_id,
    event_filter_of,
    gives,
)
from outbox.web.templating import render

PAGE_SIZE = 50


class FailedListQuery(EventIdsQuery, Paged):
    """The filter, and which page."""


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
    dry_run: bool = Field(False, description="Only report what would happen; nothing is written.")
    rate: float | None = Field(None, ge=0.01, le=100_000, description="Events per second. Default: 1,000.")
    webhook_url: str | None = Field(
        None, max_length=2000, description="Receives a webhook when the replay settles; its host must be allowed."
    )


class FlushBody(Act, EventQuery):
    """The filter, how many are expected, who and who else."""

    ids: list[UUID] | None = Field(None, max_length=MOST_IDS, description="Exactly these events.")
    expect: int = Field(ge=1, le=100_000, description="Nothing happens unless exactly this many match.")
    approved_by: str = Field(
        min_length=1, max_length=120, pattern=ONE_LINE, description="A second person, who is not `by`."
    )


def list_failed(asked: Annotated[FailedListQuery, Query()], at: At) -> Response:
    """Failed events, the newest first."""
    return answer(events.listing(events.page(at, event_filter_of(asked), ["failed"], asked.limit, asked.cursor)))


def groups(asked: Annotated[GroupQuery, Query()], at: At) -> Response:
    """Failed events by fingerprint: similar failures are one group."""
    wanted = event_filter_of(asked)
    found = at.groups().value[: asked.limit] if wanted.is_empty else at.failures.groups(wanted, asked.limit)
    return answer({"groups": found})


def preview(asked: Annotated[PreviewQuery, Query()], at: At) -> Response:
    """What a replay with this filter would take, in its order. No side effect."""
    found = at.failures.preview(event_filter_of(asked), asked.page, asked.page_size)
    paged = {"page": asked.page, "page_size": asked.page_size}
    return answer({"events": found.rows, **paged, **capped(found.total)})


def replay(body: ReplayBody, at: At, who: Who, request: Request) -> Response:
    """Replay failed events: by filter the longest failed first, or exactly these ids. 202 and the replay to follow."""
    asked = event_filter_of(body)
    if body.dry_run:
        return answer(planned(at.planner.plan(asked, body.limit)))
    created = at.replays.create(
        ReplayRequest(
            actor=actor_of(who, body),
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
    return answer(resource(created.batch), 202, {"location": f"/api/v1/replays/{created.batch.id}"})


def planned(plan: Plan) -> dict[str, Any]:
    told = {name: value for name, value in asdict(plan).items() if name not in ("id", "created_at", "ids", "matched")}
    sample = [{name: value for name, value in row.items() if name != "routing"} for row in plan.sample]
    return {"dry_run": True, **told, **capped(plan.matched), "sample": sample}


def flush(body: FlushBody, at: At, who: Who) -> Response:
    """Discard all failed events that match, if they are exactly as many as expected and a second person agrees."""
    done = at.discards.flush(event_filter_of(body), body.expect, actor_of(who, body), body.reason, body.approved_by)
    at.status.forget()
    return answer(done)


HOURS: Final = 48
# The commonest at the bottom, where columns can be compared.
SERIES: Final = ("document", "network", "timeout", "throttled", "config", "unknown")
MOST_GROUPS: Final = 100


def failures_page(request: Request) -> Response:
    at = routing.services(request)
    asked = routing.event_filter(request.query_params)
    reading, day = at.status(), at.day()
    groups = at.groups().value if asked.is_empty else at.failures.groups(asked, MOST_GROUPS)
    return render(
        request,
        "failures.html",
        groups=[(group, templating.spark(group.hours)) for group in groups],
        total=sum(group.count for group in groups),
        **routing.filter_bar(request, asked, reading.value.status),
        day=day.value,
        stale=day.problem or reading.problem,
        chart=chart(day.value),
        series=[kind for kind in SERIES if day.value.failed.by_failure_type.get(kind)],
        table=table(day.value),
        kinds=[kind for kind in SERIES if kind in FAILURE_TYPES],
    )


def chart(stats: Stats) -> templating.Columns:
    """Every hour has its place, also those in which nothing failed."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    found = {hour.hour: hour.by_failure_type for hour in stats.hours}
    hours = [now - timedelta(hours=HOURS - 1 - n) for n in range(HOURS)]
    columns = [(f"{hour:%d %b %H:00}", found.get(hour, {})) for hour in hours]
    return templating.stacked(columns, SERIES, label=lambda hour: hour[-5:])


def table(stats: Stats) -> list[tuple[str, list[int], int]]:
    """Entity type, its failures by kind, and their sum; the fullest first."""
    lines = [
        (name, [counts.get(kind, 0) for kind in SERIES], sum(counts.values())) for name, counts in stats.table.items()
    ]
    return sorted(lines, key=lambda line: -line[2])


_REPLAY_ANSWERS: Final = {
    "status_code": 202,
    "responses": {
        200: {"model": answers.Plan, "description": "A dry run: what would happen."},
        202: {"model": answers.Replay, "description": "The replay, on its way."},
        404: {"description": "Nothing matches."},
    },
}
PAGES: Final = (Endpoint("GET", f"{HOME}/failures", failures_page, VIEWER, takes=routing.EVENT_FIELDS),)
API: Final = (
    Endpoint("GET", "/failed", list_failed, VIEWER, gives(answers.EventList)),
    Endpoint("GET", "/failed/groups", groups, VIEWER, gives(answers.GroupList)),
    Endpoint("GET", "/failed/preview", preview, VIEWER, gives(answers.Preview)),
    Endpoint("POST", "/failed/replay", replay, OPERATOR, _REPLAY_ANSWERS),
    Endpoint("POST", "/failed/flush", flush, ADMIN, gives(Flushed)),
)
