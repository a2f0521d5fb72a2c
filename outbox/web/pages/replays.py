"""Replays under way and past ones: progress, what failed again, cancel. Acts are handed to the services."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from outbox.ops.replay.desk import ReplayRequest
from outbox.policy.filter import EventFilter
from outbox.web.auth.roles import Role
from outbox.web.pages import asking
from outbox.web.templating import render

PAGE_ROWS: Final = 50


def replays_page(request: Request) -> Response:
    found = asking.services(request).replays.page(request.query_params.get("cursor"), PAGE_ROWS)
    return render(request, "replays.html", page=found, may_act=_may_act(request))


def replay_page(request: Request, id: str) -> Response:
    found = asking.services(request).replays.show(asking.event_id(id))
    batch = found.batch
    return render(
        request,
        "replay_batch.html",
        batch=batch,
        again=[row for row in found.items if row["outcome"] == "failed"],
        skipped=[row for row in found.items if row["state"] == "skipped"],
        open_rows=[row for row in found.items if row["state"] == "replayed" and row["outcome"] is None],
        may_act=_may_act(request),
        said_by=asking.said_by(request),
    )


def cancel(request: Request, id: str, form: asking.Sent) -> Response:
    by = str(form.get("by") or "")
    acting = asking.actor(request, by)
    asking.services(request).replays.cancel(asking.event_id(id), acting, str(form.get("reason") or ""))
    return asking.go(request, f"/ops/queue/replays/{id}", "cancelled", by)


def replay_event(request: Request, id: str, form: asking.Sent) -> Response:
    """A single event is a batch of one, moved before the page comes back."""
    at, by = asking.services(request), str(form.get("by") or "")
    asked = ReplayRequest(
        actor=asking.actor(request, by),
        reason=str(form.get("reason") or ""),
        filter=EventFilter(ids=(asking.event_id(id),)),
    )
    created = at.replays.create(asked)
    at.dispatching.run(created)
    at.status.forget()
    return asking.go(request, f"/ops/queue/replays/{created.batch.id}", "replayed", by)


def discard_event(request: Request, id: str, form: asking.Sent) -> Response:
    at, by = asking.services(request), str(form.get("by") or "")
    at.discards.discard(asking.event_id(id), asking.actor(request, by), str(form.get("reason") or ""))
    at.status.forget()
    return asking.go(request, f"/ops/queue/events/{id}", "discarded", by)


def _may_act(request: Request) -> bool:
    return asking.person(request).role.allows(Role.OPERATOR)
