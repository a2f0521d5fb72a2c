"""Replays: the way to one (preview, plan, run), those under way and past ones, cancel; pages and API."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from outbox.ops.replay.desk import ReplayRequest
from outbox.ops.replay.plan import Plan
from outbox.policy import inputs as read
from outbox.policy.inputs import MOST_IDS, EventFilter, described, given
from outbox.policy.replay import DEFAULT_RATE, ReplayBatch
from outbox.web import answers, routing
from outbox.web.answers import answer
from outbox.web.problems import RefusedRequest
from outbox.web.routing import HOME, OPERATOR, VIEWER, Act, At, Endpoint, Paged, Who, actor_of, gives
from outbox.web.templating import render


class ReplayListQuery(Paged):
    live: bool = Field(False, description="Only those that are not over.")


def resource(batch: ReplayBatch) -> dict[str, Any]:
    """As people may see it: of a webhook's address only the host, and nothing of who holds its lease."""
    told = asdict(batch)
    for hidden in ("webhook_url", "client_id"):
        told.pop(hidden)
    to = told.pop("webhook_to")
    return {**told, "webhook_host": to.rpartition("#")[0] if to else None}


def list_replays(asked: Annotated[ReplayListQuery, Query()], at: At) -> Response:
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
    return answer(resource(at.replays.cancel(id, actor_of(who, act), act.reason)))


PAGE_ROWS: Final = 50


def replays_page(request: Request) -> Response:
    found = routing.services(request).replays.page(request.query_params.get("cursor"), PAGE_ROWS)
    return render(request, "replays.html", page=found)


def replay_page(request: Request, id: str) -> Response:
    found = routing.services(request).replays.show(routing.event_id(id))
    batch = found.batch
    return render(
        request,
        "replay_batch.html",
        batch=batch,
        again=[row for row in found.items if row["outcome"] == "failed"],
        skipped=[row for row in found.items if row["state"] == "skipped"],
        open_rows=[row for row in found.items if row["state"] == "replayed" and row["outcome"] is None],
    )


def cancel_form(id: str, sent: routing.Sent) -> Response:
    acting = sent.actor
    sent.at.replays.cancel(routing.event_id(id), acting, sent.reason)
    return sent.go(f"/ops/queue/replays/{id}", "cancelled")


def replay_event_form(id: str, sent: routing.Sent) -> Response:
    """A single event is a batch of one, moved before the page comes back."""
    asked = ReplayRequest(actor=sent.actor, reason=sent.reason, filter=EventFilter(ids=(routing.event_id(id),)))
    created = sent.at.replays.create(asked)
    sent.at.dispatching.run(created)
    return sent.go(f"/ops/queue/replays/{created.batch.id}", "replayed")


def discard_event_form(id: str, sent: routing.Sent) -> Response:
    sent.at.discards.discard(routing.event_id(id), sent.actor, sent.reason)
    return sent.go(f"/ops/queue/events/{id}", "discarded")


MOST_PLANS: Final = 20
MOST_PINNED: Final = 100_000  # ids of one plan: 10 MB. More are for the command line
KEPT_SECONDS: Final = 1800.0


class Plans:
    """A plan stays after it was run, so that a second click leads to the same replay."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # The ids as bytes, 16 each: as objects twenty plans of 100,000 took 220 MB.
        self._kept: OrderedDict[str, tuple[float, Plan, EventFilter, bytes]] = OrderedDict()

    def keep(self, plan: Plan, asked: EventFilter) -> None:
        with self._lock:
            ids = b"".join(id.bytes for id in plan.ids)
            self._kept[str(plan.id)] = (self._clock(), replace(plan, ids=()), asked, ids)
            while len(self._kept) > MOST_PLANS:
                self._kept.popitem(last=False)

    def take(self, id: str) -> tuple[Plan, EventFilter]:
        with self._lock:
            found = self._kept.get(id)
        if found is None or self._clock() - found[0] > KEPT_SECONDS:
            raise RefusedRequest(409, "This plan is too old to be run; nothing was changed. Check what matches now.")
        _, plan, asked, ids = found
        return replace(plan, ids=[UUID(bytes=ids[at : at + 16]) for at in range(0, len(ids), 16)]), asked


def preview_page(request: Request) -> Response:
    """What a replay with this filter would take, a page at a time, in its own order."""
    at, asked = routing.services(request), routing.event_filter(request.query_params)
    number = routing.number(request.query_params, "page", 1, 1, 20_000)
    found = at.failures.preview(asked, number, PAGE_ROWS)
    bar = routing.filter_bar(request, asked, at.status().value.status)
    return render(
        request,
        "replay.html",
        preview=found,
        matched=min(found.total, read.MOST_COUNTED),
        capped=found.total > read.MOST_COUNTED,
        **bar | {"filter_words": routing.raw_filter(request.query_params, routing.EVENT_FIELDS)},
        selection=_name(asked),
        most=MOST_IDS,
    )


def plan_page(request: Request, sent: routing.Sent) -> Response:
    """The plan of the chosen ids, or of all that match, its ids pinned. Still nothing is changed."""
    asked, limit = _asked(sent.form)
    plan = sent.at.planner.plan(asked, limit, pin=True)
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
        back=sent.text("back"),
    )


def run_form(request: Request, sent: routing.Sent) -> Response:
    """Replays exactly the plan's ids. The plan's id is the client id: a second click finds the first one's replay."""
    plan, asked = _plans(request).take(sent.text("plan"))
    created = sent.at.replays.create(
        ReplayRequest(
            actor=sent.actor,
            reason=sent.reason,
            filter=asked,
            pinned=plan.ids,
            rate=_rate(sent.text("rate")),
            client_id=f"console-{plan.id}",
        )
    )
    sent.at.dispatching.start(created)
    return sent.go(f"/ops/queue/replays/{created.batch.id}", "replayed")


def _plans(request: Request) -> Plans:
    found: Plans = request.app.state.plans
    return found


def _asked(form: FormData) -> tuple[EventFilter, int | None]:
    """Chosen ids alone, or the filter and how many."""
    if form.get("scope") == "selected":
        ids = " ".join(str(each) for each in form.getlist("ids"))
        asked = read.read_event_filter({"ids": ids}, datetime.now(UTC))
        if not asked.ids:
            raise read.BadRequest([("ids", "choose at least one event")])
        return asked, None
    text = str(form.get("limit") or "")
    limit = int(text) if text.isdecimal() and len(text) < 9 else None
    if text and (limit is None or not 1 <= limit <= MOST_PINNED):
        raise read.BadRequest([("limit", f"must be a whole number from 1 to {MOST_PINNED:,}")])
    return routing.event_filter(form), limit


def _rate(text: str) -> float | None:
    try:
        return read.rate(float(text), DEFAULT_RATE) if text else None
    except ValueError:
        raise read.BadRequest([("rate", "must be a number of events per second")]) from None


def _name(asked: EventFilter) -> str:
    """Names a selection by its filter: ticks of another list do not follow."""
    return hashlib.sha256(repr(sorted(given(asked).items(), key=str)).encode()).hexdigest()[:12]


PAGES: Final = (
    Endpoint("POST", f"{HOME}/events/{{id}}/replay", replay_event_form, OPERATOR),
    Endpoint("POST", f"{HOME}/events/{{id}}/discard", discard_event_form, OPERATOR),
    Endpoint("GET", f"{HOME}/replay", preview_page, VIEWER, takes=(*routing.EVENT_FIELDS, "page")),
    Endpoint("POST", f"{HOME}/replay/plan", plan_page, OPERATOR),
    Endpoint("POST", f"{HOME}/replay/run", run_form, OPERATOR),
    Endpoint("GET", f"{HOME}/replays", replays_page, VIEWER, takes=("cursor",)),
    Endpoint("GET", f"{HOME}/replays/{{id}}", replay_page, VIEWER),
    Endpoint("POST", f"{HOME}/replays/{{id}}/cancel", cancel_form, OPERATOR),
)
API: Final = (
    Endpoint("GET", "/replays", list_replays, VIEWER, gives(answers.ReplayList)),
    Endpoint("GET", "/replays/{id}", get_replay, VIEWER, gives(answers.ReplayDetail)),
    Endpoint("POST", "/replays/{id}/cancel", cancel_replay, OPERATOR, gives(answers.Replay)),
)
