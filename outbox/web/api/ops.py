"""How it is now, over HTTP: the queue, the types, what failed lately, who works; and the statistics."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from outbox.ops.audit import AuditPage
from outbox.policy.filter import AuditFilter
from outbox.web.api import audit
from outbox.web.api.answering import answer, event
from outbox.web.api.asking import At, AuditQuery, Strict, audit_filter, capped
from outbox.web.snapshot import RECENT, Snapshot


class OpsQuery(AuditQuery):
    """The audit filter and paging, for `recent_audit` alone."""

    limit: int = Field(RECENT, ge=1, le=500, description="Most audit rows.")
    cursor: str | None = Field(None, max_length=300, description="`recent_audit.next_cursor` of the answer before.")


class StatsQuery(Strict):
    hours: int = Field(48, ge=1, le=2160, description="How many hours the charts cover.")


def ops(asked: Annotated[OpsQuery, Query()], at: At) -> Response:
    """How it is now. All who ask within two seconds get the same reading."""
    reading = at.status()
    seen, status = reading.value, reading.value.status
    filtered = audit_filter(asked)
    plain = filtered == AuditFilter() and not asked.cursor and asked.limit == RECENT
    acts = _acts(seen.recent_audit) if plain else audit.listing(at, filtered, asked.limit, asked.cursor)
    return answer(
        {
            "sentence": status.sentence,
            "queue": status.queue,
            "failed_by_reason": status.failed_by_reason,
            "by_entity_type": _types(seen),
            "recent_failures": [event(each) for each in seen.recent_failures],
            "recent_audit": acts,
            "workers": status.workers,
            "pauses": status.pauses,
            "sampled_at": status.sampled_at,
            "stale": reading.problem or None,
        }
    )


def _acts(page: AuditPage) -> dict[str, Any]:
    more = None if page.next_cursor is None else str(page.next_cursor)
    return {"rows": page.rows, "next_cursor": more, **capped(page.total)}


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
    found = at.day().value if asked.hours == 48 else at.stats.look(asked.hours)
    return answer({**asdict(found), "failed": found.failed._asdict()})
