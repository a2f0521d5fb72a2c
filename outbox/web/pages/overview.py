"""The first page and `GET ops`: one sentence, what needs attention, what waits, who works; and the statistics' API.

Reads one shared snapshot; under a filter, also the failed events and the acts that fit it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from outbox.ops.audit import AuditRow
from outbox.ops.status import Pulse, QueueStatus, TypeCounts, age
from outbox.ops.stored_event import StoredEvent
from outbox.policy.event import Status
from outbox.policy.inputs import AuditFilter, EventFilter
from outbox.web import answers, routing, templating
from outbox.web.answers import answer, event
from outbox.web.pages import audit
from outbox.web.routing import HOME, VIEWER, At, AuditQuery, Endpoint, Strict, audit_filter_of, gives
from outbox.web.services import RECENT, Services, Snapshot
from outbox.web.templating import render


class OpsQuery(AuditQuery):
    """The audit filter and paging, for `recent_audit` alone."""

    limit: int = Field(RECENT, ge=1, le=500, description="Most audit rows.")
    cursor: str | None = Field(None, max_length=300, description="`recent_audit.next_cursor` of the answer before.")


class StatsQuery(Strict):
    hours: int = Field(48, ge=1, le=2160, description="How many hours the charts cover.")


def ops(asked: Annotated[OpsQuery, Query()], at: At) -> Response:
    """The status now. All requests within two seconds get the same reading."""
    reading = at.status()
    seen, status = reading.value, reading.value.status
    filtered = audit_filter_of(asked)
    plain = filtered == AuditFilter() and not asked.cursor and asked.limit == RECENT
    acts = audit.shown(seen.recent_audit) if plain else audit.listing(at, filtered, asked.limit, asked.cursor)
    own: dict[str, Any] = {
        "by_entity_type": _types(seen),
        "recent_failures": [event(each) for each in seen.recent_failures],
    }
    own |= {"recent_audit": acts, "stale": reading.problem or None}
    return answer({"stream": None, **status.as_json(), **own})


def _types(seen: Snapshot) -> list[dict[str, Any]]:
    """Types that have open or failed events first, then those that only have finished ones."""
    rows = [asdict(row) for row in seen.status.by_entity_type]
    known = {row["entity_type"] for row in rows}
    empty = {"pending": 0, "processing": 0, "failed": 0, "oldest_age_seconds": 0.0}
    rows += [{"entity_type": name, **empty} for name in [*seen.finished, *seen.discarded] if name not in known]
    unique = {row["entity_type"]: row for row in rows}
    for name, row in unique.items():
        row |= {"done": seen.finished.get(name, 0), "discarded": seen.discarded.get(name, 0)}
    return list(unique.values())


def stats(asked: Annotated[StatsQuery, Query()], at: At) -> Response:
    """Failures by type, reason and hour, what was done, what became of replays. Never a scan of done rows."""
    found = at.day().value if asked.hours == 48 else at.stats.read(asked.hours)
    return answer({**asdict(found), "failed": found.failed._asdict()})


FRESH_AGE_SECONDS = 30.0
SHOWN = 6
BOTH_FILTERS = tuple(name for name in EventFilter.__dataclass_fields__ if name in AuditFilter.__dataclass_fields__)


class Attention(NamedTuple):
    """One thing that needs a person, the most urgent first."""

    tone: str
    what: str
    detail: str
    link: str
    act: str


def overview(request: Request) -> Response:
    at = routing.services(request)
    asked = routing.event_filter(request.query_params)
    reading = at.status()
    seen, status = reading.value, reading.value.status
    shown = Narrowed(type_rows(seen), seen.recent_failures, seen.recent_audit.rows)
    if not asked.is_empty:
        shown = fitting(at, asked, shown)
    bar = routing.filter_bar(request, asked, status)
    return render(
        request,
        "overview.html",
        status=status,
        reading=reading,
        tone=tone(status),
        attention=list(attention(status)),
        headline=f"{status.sentence}.",
        subline=subline(status),
        **bar | {"known_types": bar["types"], "types": shown.types},
        recent=shown.failures[:SHOWN],
        acts=acts(shown.acts)[:SHOWN],
        workers_alive=sum(worker.alive for worker in status.workers),
        paused_all=any(row["kind"] == "pause" and row["scope"] == "*" for row in status.pauses),
    )


class TypeRow(NamedTuple):
    """One entity type as the table shows it."""

    counts: TypeCounts
    pulse: Pulse
    discarded: int

    @property
    def drained_in(self) -> float | None:
        waiting = self.counts.pending + self.counts.processing
        return waiting / self.pulse.rate if waiting and self.pulse.rate else None


STILL: Final = Pulse([0] * 60)


class Narrowed(NamedTuple):
    """What the filter of this page narrows down. The sentence and the figures above are always of the whole queue."""

    types: Sequence[TypeRow]
    failures: Sequence[StoredEvent]
    acts: Sequence[AuditRow]


def fitting(at: Services, asked: EventFilter, everything: Narrowed) -> Narrowed:
    """Types that have failed events of this filter, with their number, and the type that it names; the failures; and
    the acts, by what both filters know."""
    failed = at.failures.by_type(asked)
    names = failed.keys() | ({asked.entity_type} if asked.entity_type else set())
    known = {row.counts.entity_type: row for row in everything.types}
    rows = [(name, known.get(name) or TypeRow(TypeCounts(name), STILL, 0)) for name in sorted(names)]
    about = AuditFilter(**{name: getattr(asked, name) for name in BOTH_FILTERS})
    return Narrowed(
        types=[row._replace(counts=replace(row.counts, failed=failed.get(name, 0))) for name, row in rows],
        failures=at.browse.page(asked, (Status.FAILED,), SHOWN).events,
        acts=at.audit.page(about, None, RECENT).rows,
    )


def type_rows(seen: Snapshot) -> list[TypeRow]:
    """Types with something open or failed first, then those that only finished something in the last hour, then those
    that only have discarded events."""
    counts = {row.entity_type: row for row in seen.status.by_entity_type}
    names = dict.fromkeys([*counts, *seen.pulse, *seen.discarded])
    return [
        TypeRow(counts.get(name, TypeCounts(name)), seen.pulse.get(name, STILL), seen.discarded.get(name, 0))
        for name in names
    ]


class Acts(NamedTuple):
    """Acts of one kind and batch, which a person did at one go."""

    row: AuditRow
    times: int


def acts(rows: Sequence[AuditRow]) -> list[Acts]:
    """A replay of a hundred events is one line here; the audit has them all."""
    found: dict[object, Acts] = {}
    for row in rows:
        key = (row.action, row.batch_id) if row.batch_id else row.id
        found[key] = Acts(found[key].row, found[key].times + 1) if key in found else Acts(row, 1)
    return list(found.values())


def subline(status: QueueStatus) -> str:
    """What stands under the sentence: who works, and what waits for a person."""
    alive = sum(worker.alive for worker in status.workers)
    parts = [f"{templating.plural(alive, 'projector')} running", f"{templating.rate(status.queue.rate)} finished"]
    if status.queue.failed:
        parts.append(f"{templating.plural(status.queue.failed, 'failed event')} for a person to check")
    return " · ".join(parts)


def tone(status: QueueStatus) -> str:
    queue = status.queue
    if any(row["kind"] == "pause" and row["scope"] == "*" for row in status.pauses):
        return "idle"
    if queue.lag and not any(worker.alive for worker in status.workers):
        return "bad"
    if queue.stuck or queue.oldest_age_seconds >= FRESH_AGE_SECONDS:
        return "warn"
    return "ok"


def attention(status: QueueStatus) -> Iterator[Attention]:
    queue, plural = status.queue, templating.plural
    if queue.lag and not any(worker.alive for worker in status.workers):
        yield Attention("bad", "No projector runs", "Start one with `outbox run`.", "/ops/queue/system", "System")
    if silent := [worker for worker in status.workers if worker.state == "silent"]:
        what = plural(len(silent), "projector is", "projectors are") + " silent"
        told = f"{silent[0].worker} last seen {age(silent[0].silent_seconds)} ago"
        yield Attention("warn", what, told, "#workers", "Workers")
    if queue.stuck:
        what = plural(queue.stuck, "event is", "events are") + " stuck in processing"
        told = "Their lease has run out; they will be reclaimed."
        yield Attention("warn", what, told, "/ops/queue/events?status=processing", "Show")
    if queue.failed:
        what = plural(queue.failed, "event has", "events have") + " failed"
        reasons = sorted(status.failed_by_reason.items(), key=lambda pair: -pair[1])[:3]
        told = ", ".join(f"{templating.count(n)} {reason or 'without a reason'}" for reason, n in reasons)
        yield Attention("bad", what, told, "/ops/queue/failures", "See the groups")
    yield from _documents(status)
    for row in status.pauses:
        if row["kind"] == "pause":
            scope = "Everything" if row["scope"] == "*" else str(row["scope"]).removeprefix("type:")
            yield Attention("warn", f"{scope} is paused", f"by {row['by']}: {row['reason']}", "#pauses", "Pauses")


def _documents(status: QueueStatus) -> Iterator[Attention]:
    if status.fanouts.failed:
        what = templating.plural(status.fanouts.failed, "fan-out has", "fan-outs have") + " failed"
        told = "Documents that its change touches are stale until it is replayed."
        yield Attention("bad", what, told, "/ops/queue/failures", "See the groups")
    if status.unattached:
        are = templating.plural(len(status.unattached), "table is", "tables are")
        what = f"{are} read by the view and not attached"
        told = f"{', '.join(status.unattached[:SHOWN])}: documents go stale. Run `outbox doctor`."
        yield Attention("bad", what, told, "/ops/queue/system", "System")
    if status.rebuild:
        tone_of = "bad" if "is broken" in status.rebuild else "info"
        yield Attention(tone_of, "An index is being rebuilt", f"{status.rebuild}.", "/ops/verify", "Index")


PAGES: Final = (Endpoint("GET", HOME, overview, VIEWER, takes=routing.EVENT_FIELDS),)
API: Final = (
    Endpoint("GET", "/ops", ops, VIEWER, gives(answers.Ops)),
    Endpoint("GET", "/stats", stats, VIEWER, gives(answers.Stats)),
)
