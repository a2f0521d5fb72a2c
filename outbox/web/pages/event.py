"""One event: its error, its payload beside what Elasticsearch holds, its life. Acts are handed to the services."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

import orjson
from fastapi import Form
from starlette.requests import Request
from starlette.responses import Response

from outbox.errors import OutboxError
from outbox.ops import inputs as read
from outbox.ops.events import Current, EventDetail
from outbox.ops.explain import Verdict, explain_stored
from outbox.policy.redact import causes
from outbox.web.auth.roles import Role
from outbox.web.pages import asking
from outbox.web.show import lossless
from outbox.web.show.difference import Difference, compare, is_offending, offending_fields
from outbox.web.show.runbook import advice
from outbox.web.show.timeline import life
from outbox.web.templating import render

MOST_LINES: Final = 2_000


def event_page(request: Request, id: str) -> Response:
    return _page(request, asking.services(request).browse.show(asking.event_id(id)))


def unmask(request: Request, id: str, reason: Annotated[str, Form()] = "", by: Annotated[str, Form()] = "") -> Response:
    """Shows it once, in the answer itself: the next look is masked again."""
    at = asking.services(request)
    detail = at.browse.show(asking.event_id(id))
    payload = at.payloads.unmask(detail.event.id, asking.actor(request, by), read.reason(reason))
    return _page(request, detail, payload)


def _page(request: Request, detail: EventDetail, unmasked: bytes | None = None) -> Response:
    who, event = asking.person(request), detail.event
    masked = tuple(request.app.state.settings.redact_fields)
    shown = {"unmasked": unmasked is not None, "masked": () if unmasked is not None else masked}
    values: dict[str, Any] = {
        "detail": detail,
        "event": event,
        "advice": advice(event.error_reason),
        "verdict": _verdict(detail),
        "causes": _causes(detail.error_detail),
        "life": life(event, detail.attempts, detail.acts),
        "may_see": who.role.allows(Role.OPERATOR),
        "may_act": who.role.allows(Role.OPERATOR),
        "may_unmask": who.role.allows(Role.ADMIN),
        "said_by": asking.said_by(request),
        "show_same": request.query_params.get("same") == "1",
        **shown,
    }
    return render(request, "event.html", **values, **_document(request, detail, unmasked))


def _document(request: Request, detail: EventDetail, unmasked: bytes | None) -> dict[str, Any]:
    """What a viewer may not see is not even asked for."""
    nothing: dict[str, Any] = {
        "current": None,
        "difference": None,
        "lines": [],
        "lines_cut": False,
        "offending_paths": frozenset(),
    }
    if not asking.person(request).role.allows(Role.OPERATOR):
        return nothing
    fields = offending_fields(f"{detail.event.error or ''} {(detail.error_detail or b'').decode('utf-8', 'replace')}")
    payloads = asking.services(request).payloads
    open_ = unmasked is not None
    current = payloads.current(detail.index, detail.document_id, detail.event.routing, unmasked=open_)
    payload = _read(unmasked if open_ else detail.payload)
    lines = list(islice(lossless.lines(payload), MOST_LINES + 1)) if payload is not None else []
    hidden = () if open_ else tuple(request.app.state.settings.redact_fields)
    return {
        "current": current,
        "difference": _difference(payload, current, fields, hidden),
        "lines": lines[:MOST_LINES],
        "lines_cut": len(lines) > MOST_LINES,
        "offending_paths": frozenset(line.path for line in lines if line.path and is_offending(line.path, fields)),
    }


def _difference(payload: Any, current: Current, fields: tuple[str, ...], hidden: tuple[str, ...]) -> Difference | None:
    theirs = _read(current.source)
    if payload is None or theirs is None:
        return None
    return compare(payload, theirs, fields, hidden)


def _read(text: bytes | None) -> Any:
    try:
        return None if text is None else lossless.read(text)
    except lossless.Unreadable:
        return None


def _verdict(detail: EventDetail) -> Verdict | None:
    event = detail.event
    try:
        return explain_stored(event, detail.error_detail)
    except OutboxError:
        return None


def _causes(detail: bytes | None) -> list[dict[str, str]]:
    """Type and reason of each link of the chain, outermost first."""
    try:
        told = orjson.loads(detail) if detail else None
    except orjson.JSONDecodeError:
        return []
    error = told.get("error", told) if isinstance(told, dict) else told
    found = [
        {"type": str(cause.get("type") or ""), "reason": str(cause.get("reason") or "")} for cause in causes(error)
    ]
    return [cause for cause in found if cause["type"] or cause["reason"]]
