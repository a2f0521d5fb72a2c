"""The page of one event: its error, its payload beside what Elasticsearch holds, its history. Acts nowhere itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response

from outbox.errors import OutboxError
from outbox.ops.events import EventDetail
from outbox.ops.explain import Verdict, explain_stored
from outbox.ops.stored_event import StoredEvent
from outbox.policy import inputs as read
from outbox.policy import lossless
from outbox.policy.event import REFRESH
from outbox.policy.lossless import Members
from outbox.policy.redact import causes
from outbox.web import routing
from outbox.web.auth import Role
from outbox.web.difference import compare, offending_fields
from outbox.web.difference import lines as lines_of
from outbox.web.routing import ADMIN, HOME, VIEWER, Endpoint
from outbox.web.runbook import advice
from outbox.web.templating import render

MOST_LINES: Final = 2_000


def event_page(request: Request, id: str) -> Response:
    return _page(request, routing.services(request).browse.show(routing.event_id(id)))


def unmask(request: Request, id: str, sent: routing.Sent) -> Response:
    """Shows it once, in the answer itself: the next request gets it masked again."""
    detail = sent.at.browse.show(routing.event_id(id))
    payload = sent.at.payloads.unmask(detail.event.id, sent.actor, read.reason(sent.reason))
    return _page(request, detail, payload)


def _page(request: Request, detail: EventDetail, unmasked: bytes | None = None) -> Response:
    event = detail.event
    masked = tuple(request.app.state.settings.redact_fields)
    shown = {"unmasked": unmasked is not None, "masked": () if unmasked is not None else masked}
    values: dict[str, Any] = {
        "detail": detail,
        "event": event,
        "advice": advice(event.error_reason),
        "verdict": _verdict(event, detail.error_detail),
        "causes": _causes(detail.error_detail),
        "life": life(event, detail.attempts, detail.acts),
        "may_unmask": routing.person(request).role.allows(Role.ADMIN),
        "show_same": request.query_params.get("same") == "1",
        **shown,
    }
    return render(request, "event.html", **values, **_document(request, detail, unmasked))


def _document(request: Request, detail: EventDetail, unmasked: bytes | None) -> dict[str, Any]:
    """What a viewer may not see is not even asked for."""
    if not routing.person(request).may_act:
        return {"current": None, "difference": None, "lines": [], "lines_cut": False}
    fields = offending_fields(f"{detail.event.error or ''} {(detail.error_detail or b'').decode('utf-8', 'replace')}")
    payloads = routing.services(request).payloads
    open_ = unmasked is not None
    current = payloads.current(detail.index, detail.document_id, detail.event.routing, unmasked=open_)
    payload, theirs = _read(unmasked if open_ else detail.payload), _read(current.source)
    lines = list(islice(lines_of(payload), MOST_LINES + 1)) if payload is not None else []
    hidden = () if open_ else tuple(request.app.state.settings.redact_fields)
    there = Members() if theirs is None else theirs
    return {
        "current": current,
        "difference": None if payload is None else compare(payload, there, fields, hidden),
        "lines": lines[:MOST_LINES],
        "lines_cut": len(lines) > MOST_LINES,
    }


def _read(text: bytes | None) -> Any:
    try:
        return None if text is None else lossless.read(text)
    except lossless.Unreadable:
        return None


def _verdict(event: StoredEvent, detail: bytes | None) -> Verdict | None:
    try:
        return explain_stored(event, detail)
    except OutboxError:
        return None


def _causes(detail: bytes | None) -> list[dict[str, str]]:
    """Type and reason of each link of the chain, outermost first."""
    try:
        told = orjson.loads(detail) if detail else None
    except orjson.JSONDecodeError:
        return []
    error = told.get("error", told) if isinstance(told, dict) else told
    found = ({name: str(cause.get(name) or "") for name in ("type", "reason")} for cause in causes(error))
    return [cause for cause in found if any(cause.values())]


Row = Mapping[str, Any]
_ACTS: Final = {
    "REPLAY_BATCH_ITEM": "Replayed",
    "REPLAY_BATCH_SKIPPED": "Left out of a replay",
    "EVENT_DISCARDED": "Discarded",
    "EVENT_DELETED": "Deleted by SQL",
    "EVENT_REQUESTED": "Asked for",
    "PAYLOAD_UNMASKED": "Payload unmasked",
}
_ENDS: Final = {"done": ("Done", "ok"), "discarded": ("Discarded", "info")}


class Step(NamedTuple):
    at: datetime
    what: str
    detail: str
    tone: str = ""
    link: str = ""


def life(event: StoredEvent, attempts: Sequence[Row], acts: Sequence[Row]) -> list[Step]:
    """Oldest first; what is still to come stands last."""
    return sorted(_steps(event, attempts, acts), key=lambda step: step.at)


def _steps(event: StoredEvent, attempts: Sequence[Row], acts: Sequence[Row]) -> Iterator[Step]:
    version = "" if event.op == REFRESH else f", version {event.event_version}"
    yield Step(event.created_at, "Created", f"{event.op}{version}")
    for row in attempts:
        said = ", ".join(filter(None, [row["reason"], f"by {row['worker']}" if row["worker"] else ""]))
        yield Step(row["at"], f"Attempt {row['attempt']} failed", said, "bad")
    for row in acts:
        detail = f"by {row['actor']} ({row['source']})" + (f": {row['reason']}" if row["reason"] else "")
        batch = f"/ops/queue/replays/{row['batch_id']}" if row["batch_id"] else ""
        yield Step(row["at"], _ACTS.get(row["action"], str(row["action"])), detail, "info", batch)
    yield from _now(event)


def _now(event: StoredEvent) -> Iterator[Step]:
    """Where it stands. The last claim is kept on the row; earlier ones are not."""
    if event.last_attempt_at:
        owner = f" by {event.owner}" if event.owner else ""
        yield Step(event.last_attempt_at, f"Claimed{owner}", f"attempt {event.attempts}")
    if event.failed_at:
        yield Step(event.failed_at, "Failed", event.dead_reason or event.error_reason or "", "bad")
    if event.processed_at and event.status in _ENDS:
        what, tone = _ENDS[event.status]
        yield Step(event.processed_at, what, event.read, tone)
    if event.next_retry_at and event.status == "pending":
        yield Step(event.next_retry_at, "Due again", event.error_reason or "", "info")
    if event.lease_until and event.status == "processing":
        yield Step(event.lease_until, "Its lease ends", "unless it is renewed")


PAGES: Final = (
    Endpoint("GET", f"{HOME}/events/{{id}}", event_page, VIEWER, takes=("same",)),
    Endpoint("POST", f"{HOME}/events/{{id}}/unmask", unmask, ADMIN, shows=True),
)
