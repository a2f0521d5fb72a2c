"""Is the index right: the last comparison with what it found, earlier ones, and a rebuild under way. Starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from outbox.policy.drift import DRIFT, Kind
from outbox.policy.rebuild import Rebuild
from outbox.web.pages import asking
from outbox.web.show import words
from outbox.web.templating import render

RESULTS: Final = 20
MEANING: Final = {
    Kind.MISSING: "in PostgreSQL, not in the index",
    Kind.STALE: "an older version in the index",
    Kind.ORPHANED: "in the index, not in PostgreSQL",
    Kind.DIFFERENT: "other content at this version",
    Kind.UNKNOWN: "nobody knows it; left alone",
}


class Found(NamedTuple):
    """One line of the report. Only names of fields, never their values."""

    kind: str
    id: str
    version: int | None
    held: int | None
    remark: str


def verify_page(request: Request) -> Response:
    at = asking.services(request)
    results = at.verify.last_results(RESULTS)
    last = next((row for row in results if row["status"] == "finished"), None)
    running = next((row for row in results[:1] if row["status"] == "running"), None)
    rebuilds = at.rebuilds(5)
    return render(
        request,
        "verify.html",
        results=results,
        last=last,
        running=running,
        drift=drift(last),
        doubt=doubt(last),
        found=findings(last),
        meaning=MEANING,
        rebuild=rebuilds[0] if rebuilds else None,
        share=share(rebuilds[0]) if rebuilds else None,
    )


def drift(row: Mapping[str, Any] | None) -> int:
    return 0 if row is None else sum(row[kind] for kind in DRIFT)


def doubt(row: Mapping[str, Any] | None) -> str:
    """What could not be judged, in words; the command exits with 3 then."""
    told = {"unknown": "unknown to PostgreSQL", "unreadable": "unreadable there", "in_flux": "still changing"}
    return ", ".join(f"{words.count(row[name])} {text}" for name, text in told.items() if row and row[name])


def findings(row: Mapping[str, Any] | None) -> list[Found]:
    report = (row or {}).get("report") or {}
    first: Mapping[str, Any] = report.get("first", {})
    return [_found(kind, each) for kind in Kind for each in first.get(kind, ())]


def _found(kind: str, each: Mapping[str, Any]) -> Found:
    remark = each.get("why") or ", ".join(each.get("fields", ()))
    if each.get("failed_event"):
        remark = f"{remark} its newest event failed".strip()
    return Found(kind, each["id"], each.get("version"), each.get("elasticsearch_version"), remark)


def share(rebuild: Rebuild) -> str:
    total = max(rebuild.total or 0, rebuild.written)
    return f"{words.count(rebuild.written)} of about {words.count(total)}" if total else "nothing yet"
