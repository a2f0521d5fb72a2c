"""The way to a replay: preview with pages, choose some or all, see the plan, give a reason, run it."""

from __future__ import annotations

import hashlib
from typing import Final

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from outbox.ops import inputs as read
from outbox.ops.replay.desk import ReplayRequest
from outbox.policy.filter import MOST_IDS, EventFilter, described, given
from outbox.policy.replay import DEFAULT_RATE
from outbox.web.pages import asking
from outbox.web.plans import MOST_PINNED, Plans
from outbox.web.templating import render

PAGE_ROWS: Final = 50


def preview_page(request: Request) -> Response:
    """What a replay with this filter would take, a page at a time, in its own order."""
    asked = asking.event_filter(request.query_params)
    number = asking.number(request.query_params, "page", 1, 1, 20_000)
    found = asking.services(request).failures.preview(asked, number, PAGE_ROWS)
    words = asking.raw_filter(request.query_params, asking.EVENT_FIELDS)
    status = asking.services(request).status().value.status
    return render(
        request,
        "replay.html",
        preview=found,
        matched=min(found.total, read.MOST_COUNTED),
        capped=found.total > read.MOST_COUNTED,
        filter_words=words,
        reasons=sorted(reason for reason in status.failed_by_reason if reason),
        types=sorted(row.entity_type for row in status.by_entity_type),
        selection=_name(asked),
        most=MOST_IDS,
    )


def plan_page(request: Request, form: asking.Sent) -> Response:
    """The plan of the chosen ids, or of all that match, its ids pinned. Still nothing is changed."""
    asked, limit = _asked(form)
    plan = asking.services(request).planner.plan(asked, limit, pin=True)
    _plans(request).keep(plan, asked)
    return render(
        request,
        "plan.html",
        plan=plan,
        about=described(asked),
        matched=min(plan.matched, read.MOST_COUNTED),
        capped=plan.matched > read.MOST_COUNTED,
        rate=DEFAULT_RATE,
        takes=plan.total / DEFAULT_RATE,
        said_by=asking.said_by(request),
        back=str(form.get("back") or ""),
    )


def run(request: Request, form: asking.Sent) -> Response:
    """Replays exactly the plan's ids. The plan's id is the client id: a second click finds the first one's replay."""
    at, by = asking.services(request), str(form.get("by") or "")
    plan, asked = _plans(request).take(str(form.get("plan") or ""))
    created = at.replays.create(
        ReplayRequest(
            actor=asking.actor(request, by),
            reason=str(form.get("reason") or ""),
            filter=asked,
            pinned=plan.ids,
            rate=_rate(form),
            client_id=f"console-{plan.id}",
        )
    )
    at.dispatching.start(created)
    at.status.forget()
    return asking.go(request, f"/ops/queue/replays/{created.batch.id}", "replayed", by)


def _plans(request: Request) -> Plans:
    found: Plans = request.app.state.plans
    return found


def _asked(form: FormData) -> tuple[EventFilter, int | None]:
    """Chosen ids alone, or the filter and how many."""
    if form.get("scope") == "selected":
        ids = " ".join(str(each) for each in form.getlist("ids"))
        asked = read.event_filter({"ids": ids})
        if not asked.ids:
            raise read.BadRequest([("ids", "choose at least one event")])
        return asked, None
    text = str(form.get("limit") or "")
    limit = int(text) if text.isdecimal() and len(text) < 9 else None
    if text and (limit is None or not 1 <= limit <= MOST_PINNED):
        raise read.BadRequest([("limit", f"must be a whole number from 1 to {MOST_PINNED:,}")])
    return asking.event_filter(form), limit


def _rate(form: FormData) -> float | None:
    text = str(form.get("rate") or "")
    try:
        return read.rate(float(text), DEFAULT_RATE) if text else None
    except ValueError:
        raise read.BadRequest([("rate", "must be a number of events a second")]) from None


def _name(asked: EventFilter) -> str:
    """Names a selection by its filter: ticks of another list do not follow."""
    return hashlib.sha256(repr(sorted(given(asked).items(), key=str)).encode()).hexdigest()[:12]
