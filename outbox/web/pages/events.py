"""Lists of events: any state, or failed ones only, by the one filter. Reads a page at a time, from where it is told."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from outbox.errors import UsageError
from outbox.ops.events import EventPage
from outbox.policy.event import Status
from outbox.policy.filter import given
from outbox.web.pages import asking
from outbox.web.problems import Refused
from outbox.web.templating import render

PAGE_ROWS: Final = 50


def events_page(request: Request) -> Response:
    status = request.query_params.get("status", "")
    return _list(request, (status,) if status else (), "events.html", title="Events", action="/ops/queue/events")


def failed_list(request: Request) -> Response:
    return _list(request, ("failed",), "events.html", title="Failed events", action="/ops/queue/failures/list")


def _list(request: Request, statuses: tuple[str, ...], template: str, **values: Any) -> Response:
    asked = asking.event_filter(request.query_params)
    page = _read(request, asked, statuses)
    status = asking.services(request).status().value.status
    words = {name: request.query_params[name] for name in given(asked) if name in request.query_params}
    if request.query_params.get("status"):
        words["status"] = request.query_params["status"]
    return render(
        request,
        template,
        page=page,
        filter_words=words,
        reasons=sorted(reason for reason in status.failed_by_reason if reason),
        types=sorted(row.entity_type for row in status.by_entity_type),
        statuses=[str(each) for each in Status],
        only_failed=statuses == ("failed",) and values["action"].endswith("/list"),
        **values,
    )


def _read(request: Request, asked: object, statuses: tuple[str, ...]) -> EventPage:
    cursor = request.query_params.get("cursor", "")
    try:
        return asking.services(request).browse.page(asked, statuses, PAGE_ROWS, cursor)  # type: ignore[arg-type]
    except UsageError as wrong:
        raise Refused(400, wrong.message) from wrong
