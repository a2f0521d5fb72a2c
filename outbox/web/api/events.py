"""Events over HTTP: list, one in full, replay or discard one, ask for an entity to be projected again."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from outbox.errors import Conflict, UsageError
from outbox.ops.events import EventPage
from outbox.ops.replay.desk import ReplayRequest
from outbox.policy.event import Status
from outbox.policy.filter import EventFilter
from outbox.web.api.answering import answer, event
from outbox.web.api.asking import ONE_LINE, Act, At, EventIdsQuery, Who, actor, client_id, event_filter
from outbox.web.api.replays import resource
from outbox.web.auth.roles import Person, Role
from outbox.web.problems import Refused
from outbox.web.services import Services


class ListQuery(EventIdsQuery):
    """The filter, and which page."""

    status: list[Status] = Field(default_factory=list, max_length=5, description="States; open and failed if none.")
    limit: int = Field(50, ge=1, le=500, description="Most events on the page.")
    cursor: str | None = Field(None, max_length=300, description="`next_cursor` of the page before.")


def list_events(asked: Annotated[ListQuery, Query()], at: At) -> Response:
    """Events by the one filter: open ones first, then failed, done and discarded; the newest of each first."""
    return answer(listing(page(at, event_filter(asked), [str(s) for s in asked.status], asked.limit, asked.cursor)))


def page(at: Services, asked: EventFilter, statuses: list[str], limit: int, cursor: str | None) -> EventPage:
    try:
        return at.browse.page(asked, statuses, limit, cursor or "")
    except UsageError as wrong:
        raise Refused(400, "The cursor is not one that an earlier page has named.") from wrong


def listing(found: EventPage) -> dict[str, Any]:
    return {
        "events": [event(each) for each in found.events],
        "next_cursor": found.next or None,
        "remark": found.remark or None,
    }


def get_event(id: UUID, at: At, who: Who) -> Response:
    """One event with all that is recorded about it. The payload is for operators, and masked."""
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
    done = at.projection.ask(body.entity_type, body.entity_id, actor(who, body), body.reason)
    at.status.forget()
    return answer(done, 202, {"location": f"/api/v1/events/{done.id}"})


def replay_event(id: UUID, act: Act, at: At, who: Who, request: Request) -> Response:
    """Replay one failed or discarded event: a batch of one. 409 with its state for any other."""
    found = at.browse.show(id).event
    if found.status not in (Status.FAILED, Status.DISCARDED):
        raise _conflict(found.status, f"The event is {found.status}; only failed and discarded ones can be replayed.")
    created = at.replays.create(
        ReplayRequest(
            actor=actor(who, act),
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
    """Give one pending or failed event up. The row is kept; 409 with its state for any other."""
    return answer(discard(at, id, who, act))


def discard(at: Services, id: UUID, who: Person, act: Act) -> Any:
    try:
        done = at.discards.discard(id, actor(who, act), act.reason)
    except Conflict as wrong:
        raise _conflict(at.browse.show(id).event.status, wrong.message) from wrong
    at.status.forget()
    return done


def _conflict(state: str, detail: str) -> Refused:
    return Refused(409, detail, state=str(state))
