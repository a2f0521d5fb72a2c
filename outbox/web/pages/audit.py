"""The audit: filter, page, export (streamed), and prune after a dry run; page and API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from outbox.ops.audit import AuditPage, AuditPruned
from outbox.policy import inputs as read
from outbox.policy.audit import LEAST_DAYS, Action, Actor, Source
from outbox.policy.inputs import AuditFilter, described, given
from outbox.web import answers, routing
from outbox.web.answers import answer
from outbox.web.auth import EXPORT, Role
from outbox.web.problems import RefusedRequest
from outbox.web.routing import (
    ADMIN,
    HOME,
    VIEWER,
    Act,
    At,
    AuditQuery,
    Endpoint,
    Paged,
    Who,
    actor_of,
    audit_filter_of,
    capped,
    gives,
)
from outbox.web.services import Services
from outbox.web.templating import link, render, said_by

MEDIA_TYPES: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json", "ndjson": "application/x-ndjson"}


class AuditListQuery(AuditQuery, Paged):
    """The filter, and which page."""


class ExportQuery(AuditQuery):
    format: Literal["csv", "json", "ndjson"] = Field("json", description="CSV neutralises formulas; JSON is lossless.")


class PruneBody(Act, AuditQuery):
    """Which rows go, who and why."""

    older_than_days: float = Field(ge=LEAST_DAYS, le=36_500, description="Rows older than this.")
    dry_run: bool = Field(False, description="Only say how many.")


def list_audit(asked: Annotated[AuditListQuery, Query()], at: At) -> Response:
    """What people did, the newest first."""
    return answer(listing(at, audit_filter_of(asked), asked.limit, asked.cursor))


def listing(at: Services, asked: AuditFilter, limit: int, cursor: str | None) -> dict[str, Any]:
    return shown(page(at, asked, limit, cursor))


def shown(page: AuditPage) -> dict[str, Any]:
    more = None if page.next_cursor is None else str(page.next_cursor)
    return {"rows": page.rows, "next_cursor": more, **capped(page.total)}


def page(at: Services, asked: AuditFilter, limit: int, cursor: str | None) -> AuditPage:
    if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise RefusedRequest(400, "Invalid cursor.")
    return at.audit.page(asked, int(cursor) if cursor else None, limit)


def export(asked: Annotated[ExportQuery, Query()], at: At, who: Who, request: Request) -> Response:
    """All rows that match, streamed; that they were exported is written to the audit."""
    return stream(request, at, audit_filter_of(asked), asked.format, read.actor(who.name, Source.API, str(who.role)))


def stream(request: Request, at: Services, asked: AuditFilter, form: str, by: Actor) -> Response:
    request.app.state.gate.hold(request, EXPORT, by.name)
    name = f"outbox-audit-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.{form}"
    pieces = _gathered(at.exports.export(asked, form, by))
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, headers=headers, media_type=MEDIA_TYPES[form])


def _gathered(pieces: Iterator[str], least: int = 65_536) -> Iterator[str]:
    """One row per chunk would cost a system call per row."""
    kept: list[str] = []
    size = 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size >= least:
            yield "".join(kept)
            kept, size = [], 0
    yield "".join(kept)


def prune(body: PruneBody, at: At, who: Who) -> Response:
    """Remove old rows in steps; their hashes stay, so that the chain can still be verified."""
    asked, acting = audit_filter_of(body), actor_of(who, body)
    return answer(at.audit.prune(asked, body.older_than_days, acting, body.reason, dry_run=body.dry_run))


PAGE_ROWS: Final = 50


def audit_page(request: Request) -> Response:
    return _page(request)


def _page(request: Request, pruned: AuditPruned | None = None, days: str = "30", why: str = "") -> Response:
    asked = routing.audit_filter(request.query_params)
    found = page(routing.services(request), asked, PAGE_ROWS, request.query_params.get("cursor"))
    return render(
        request,
        "audit.html",
        page=found,
        matched=min(found.total, read.MOST_COUNTED),
        capped=found.total > read.MOST_COUNTED,
        filter_words={name: request.query_params[name] for name in given(asked) if name in request.query_params},
        about=described(asked),
        actions=[str(action) for action in Action],
        pruned=pruned,
        days=days,
        why=why,
        may_prune=routing.person(request).role.allows(Role.ADMIN),
    )


def export_form(request: Request) -> Response:
    """The rows of the filter in the address, as a file. A POST: who exports is written to the audit."""
    form = request.query_params.get("format", "csv")
    if form not in MEDIA_TYPES:
        raise RefusedRequest(422, f"The format must be one of {', '.join(MEDIA_TYPES)}.")
    who = routing.person(request)
    by = read.actor(who.name if who.by_token else said_by(request) or who.name, Source.CONSOLE, str(who.role))
    return stream(request, routing.services(request), routing.audit_filter(request.query_params), form, by)


def prune_form(request: Request, sent: routing.Sent) -> Response:
    """A dry run says how many; only the second button removes, and needs a reason."""
    days, dry = sent.text("older_than_days"), sent.text("run") != "really"
    acting, asked = sent.actor, routing.audit_filter(request.query_params)
    done = sent.at.audit.prune(asked, _days(days), acting, None if dry else sent.reason, dry_run=dry)
    if dry:
        return _page(request, done, days, sent.reason)
    words = routing.raw_filter(request.query_params, routing.AUDIT_FIELDS)
    return sent.go(link("/ops/queue/audit", **words), "pruned")


def _days(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise read.BadRequest([("older_than_days", "must be a number of days")]) from None


_TEXT: Final = {"schema": {"type": "string"}}
_ROWS: Final = {"schema": {"type": "array", "items": {"type": "object"}}}
_FORMS: Final = {"text/csv": _TEXT, "application/json": _ROWS, "application/x-ndjson": _TEXT}
_EXPORT_ANSWERS: Final = {"responses": {200: {"description": "The rows.", "content": _FORMS}}}
PAGES: Final = (
    Endpoint("GET", f"{HOME}/audit", audit_page, VIEWER, takes=(*routing.AUDIT_FIELDS, "cursor")),
    Endpoint("POST", f"{HOME}/audit/export", export_form, VIEWER, takes=(*routing.AUDIT_FIELDS, "format"), shows=True),
    Endpoint("POST", f"{HOME}/audit/prune", prune_form, ADMIN, takes=routing.AUDIT_FIELDS),
)
API: Final = (
    Endpoint("GET", "/audit", list_audit, VIEWER, gives(answers.AuditList)),
    Endpoint("GET", "/audit/export", export, VIEWER, _EXPORT_ANSWERS, acts=True),
    Endpoint("POST", "/audit/prune", prune, ADMIN, gives(AuditPruned)),
)
