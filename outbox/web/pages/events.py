"""Events: lists by the one filter, and the API to list, show, replay, discard and ask for a projection."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from outbox.errors import Conflict, UsageError
from outbox.ops.discard import Discarded
from outbox.ops.events import EventPage
from outbox.ops.replay.desk import ReplayRequest
from outbox.ops.reprojection import Requested
from outbox.policy.event import Status
from outbox.policy.inputs import EventFilter
from outbox.ports import EntityWait
from outbox.web import answers, routing
from outbox.web.answers import answer, event
from outbox.web.auth import Person, Role
from outbox.web.pages.replays import resource
from outbox.web.problems import RefusedRequest, usage_detail
from outbox.web.routing import (
    HOME,
    ONE_LINE,
    OPERATOR,
    VIEWER,
    Act,
    At,
    Endpoint,
    EventIdsQuery,
    Paged,
    Strict,
    Who,
    actor_of,
    client_id,
    event_filter_of,
    gives,
)
from outbox.web.services import Services
from outbox.web.templating import render

LONGEST_WAIT: Final = 10.0  # less than proxies wait for an answer, which is a minute at most of them


class EventListQuery(EventIdsQuery, Paged):
    """The filter, and which page."""

    status: list[Status] = Field(default_factory=list, max_length=5, description="States; open and failed if none.")


def list_events(asked: Annotated[EventListQuery, Query()], at: At) -> Response:
    """Events by the one filter: open ones first, then failed, done and discarded; the newest of each first."""
    return answer(listing(page(at, event_filter_of(asked), [str(s) for s in asked.status], asked.limit, asked.cursor)))


def page(at: Services, asked: EventFilter, statuses: list[str], limit: int, cursor: str | None) -> EventPage:
    try:
        return at.browse.page(asked, statuses, limit, cursor or "")
    except UsageError as wrong:
        raise RefusedRequest(400, "Invalid cursor.") from wrong


def listing(found: EventPage) -> dict[str, Any]:
    return {
        "events": [event(each) for each in found.events],
        "next_cursor": found.next or None,
        "remark": found.remark or None,
    }


class EventWaitQuery(Strict):
    """How long the answer may wait for the event."""

    wait: float = Field(
        0,
        ge=0,
        le=LONGEST_WAIT,
        description="Answer when the event is settled (done, failed, discarded), at the latest after so many seconds.",
    )


async def get_event(id: UUID, asked: Annotated[EventWaitQuery, Query()], at: At, who: Who) -> Response:
    """One event with all that is recorded about it. The payload is for operators, and masked."""
    if asked.wait:
        await asyncio.wrap_future(at.settling.submit(id, asked.wait))
    return await run_in_threadpool(_detail, id, at, who)


async def get_entity(entity_type: str, entity_id: str, asked: Annotated[EventWaitQuery, Query()], at: At) -> Response:
    """Whether all events of an entity, and all fan-outs to its type, that were committed before are settled."""
    about = EntityWait(entity_type, entity_id)
    state = await asyncio.wrap_future(at.settling.submit(about, asked.wait))
    if state is None:
        raise RefusedRequest(409, "Producers write to the event log: only Kafka knows what is settled.")
    return answer({"entity_type": entity_type, "entity_id": entity_id, "status": state})


def _detail(id: UUID, at: Services, who: Person) -> Response:
    found = at.browse.show(id)
    shown = who.role.allows(Role.OPERATOR) and found.payload is not None
    return answer(
        {
            **event(found.event),
            "index": found.index,
            "document_id": found.document_id,
            "payload": found.payload if shown else None,
            "payload_bytes": found.payload_bytes,
            "payload_shown": shown,
            "error_detail": found.error_detail,
            "attempts_log": found.attempts,
            "acts": found.acts,
            "related": found.related,
        }
    )


class ProjectBody(Act):
    """Which entity, who asks and why."""

    entity_type: str = Field(min_length=1, max_length=200, pattern=ONE_LINE, description="The entity's type.")
    entity_id: str = Field(min_length=1, max_length=512, pattern=ONE_LINE, description="Its id.")


def project(body: ProjectBody, at: At, who: Who) -> Response:
    """Ask for one entity to be projected again, from the view or its newest event, at its newest version."""
    done = at.projection.ask(body.entity_type, body.entity_id, actor_of(who, body), body.reason)
    at.status.forget()
    return answer(done, 202, {"location": f"/api/v1/events/{done.id}"})


def replay_event(id: UUID, act: Act, at: At, who: Who, request: Request) -> Response:
    """Replay one failed or discarded event: a batch of one. 409 with its state for any other."""
    found = at.browse.show(id).event
    if found.status not in (Status.FAILED, Status.DISCARDED):
        raise _conflict(found.status, f"The event is {found.status}; only failed and discarded ones can be replayed.")
    created = at.replays.create(
        ReplayRequest(
            actor=actor_of(who, act),
            reason=act.reason,
            filter=EventFilter(ids=(id,)),
            client_id=client_id(request, who),
        )
    )
    at.dispatching.run(created)
    at.status.forget()
    batch = at.replays.get(created.batch.id)
    return answer(resource(batch), 202, {"location": f"/api/v1/replays/{batch.id}"})


def discard_event(id: UUID, act: Act, at: At, who: Who) -> Response:
    """Discard one pending or failed event. The row is kept; 409 with its state for any other."""
    try:
        done = at.discards.discard(id, actor_of(who, act), act.reason)
    except Conflict as wrong:
        raise _conflict(at.browse.show(id).event.status, wrong.message) from wrong
    at.status.forget()
    return answer(done)


def _conflict(state: str, detail: str) -> RefusedRequest:
    return RefusedRequest(409, detail, state=str(state))


PAGE_ROWS: Final = 50


def events_page(request: Request) -> Response:
    status = request.query_params.get("status", "")
    return _list(request, (status,) if status else (), title="Events", action="/ops/queue/events")


def failed_list(request: Request) -> Response:
    return _list(request, ("failed",), title="Failed events", action="/ops/queue/failures/list")


def _list(request: Request, statuses: tuple[str, ...], **values: Any) -> Response:
    at, asked = routing.services(request), routing.event_filter(request.query_params)
    try:
        page = at.browse.page(asked, statuses, PAGE_ROWS, request.query_params.get("cursor", ""))
    except UsageError as wrong:
        raise RefusedRequest(400, usage_detail(wrong)) from wrong
    values |= routing.filter_bar(request, asked, at.status().value.status)
    if request.query_params.get("status"):
        values["filter_words"]["status"] = request.query_params["status"]
    return render(
        request,
        "events.html",
        page=page,
        statuses=[str(each) for each in Status],
        only_failed=values["action"].endswith("/list"),
        **values,
    )


_PROJECT_ANSWERS: Final = {
    "status_code": 202,
    "responses": {
        202: {"model": Requested, "description": "The event, written."},
        404: {"description": "This entity is unknown."},
    },
}
PAGES: Final = (
    Endpoint("GET", f"{HOME}/failures/list", failed_list, VIEWER, takes=(*routing.EVENT_FIELDS, "cursor")),
    Endpoint("GET", f"{HOME}/events", events_page, VIEWER, takes=(*routing.EVENT_FIELDS, "cursor", "status")),
)
API: Final = (
    Endpoint("GET", "/events", list_events, VIEWER, gives(answers.EventList)),
    Endpoint("GET", "/events/{id}", get_event, VIEWER, gives(answers.EventDetail)),
    Endpoint("GET", "/entities/{entity_type}/{entity_id}", get_entity, VIEWER, gives(answers.EntityState)),
    Endpoint("POST", "/events", project, OPERATOR, _PROJECT_ANSWERS),
    Endpoint("POST", "/events/{id}/replay", replay_event, OPERATOR, gives(answers.Replay, 202, "On its way.")),
    Endpoint("POST", "/events/{id}/discard", discard_event, OPERATOR, gives(Discarded)),
)
