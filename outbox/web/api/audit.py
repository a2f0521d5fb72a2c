"""The audit over HTTP: pages, exports that stream, pruning."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from outbox.ops import inputs as read
from outbox.ops.audit import AuditPage
from outbox.policy.audit import LEAST_DAYS, Actor, Source
from outbox.policy.filter import AuditFilter
from outbox.web.api.answering import answer
from outbox.web.api.asking import Act, At, AuditQuery, Who, actor, audit_filter, capped
from outbox.web.auth.pace import EXPORT
from outbox.web.problems import Refused
from outbox.web.services import Services

MEDIA_TYPES: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json", "ndjson": "application/x-ndjson"}


class ListQuery(AuditQuery):
    limit: int = Field(50, ge=1, le=500, description="Most rows on the page.")
    cursor: str | None = Field(None, max_length=300, description="`next_cursor` of the page before.")


class ExportQuery(AuditQuery):
    format: Literal["csv", "json", "ndjson"] = Field("json", description="CSV neutralises formulas; JSON is lossless.")


class PruneBody(Act, AuditQuery):
    """Which rows go, who and why."""

    older_than_days: float = Field(ge=LEAST_DAYS, le=36_500, description="Rows older than this.")
    dry_run: bool = Field(False, description="Only say how many.")


def list_audit(asked: Annotated[ListQuery, Query()], at: At) -> Response:
    """What people did, the newest first."""
    return answer(listing(at, audit_filter(asked), asked.limit, asked.cursor))


def listing(at: Services, asked: AuditFilter, limit: int, cursor: str | None) -> dict[str, Any]:
    found = page(at, asked, limit, cursor)
    more = None if found.next_cursor is None else str(found.next_cursor)
    return {"rows": found.rows, "next_cursor": more, **capped(found.total)}


def page(at: Services, asked: AuditFilter, limit: int, cursor: str | None) -> AuditPage:
    if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise Refused(400, "The cursor is not one that an earlier page has named.")
    return at.audit.page(asked, int(cursor) if cursor else None, limit)


def export(asked: Annotated[ExportQuery, Query()], at: At, who: Who, request: Request) -> Response:
    """All rows that match, streamed; that they were exported is written to the audit."""
    return stream(request, at, audit_filter(asked), asked.format, read.actor(who.name, Source.API, str(who.role)))


def stream(request: Request, at: Services, asked: AuditFilter, form: str, by: Actor) -> Response:
    request.app.state.gate.hold(request, EXPORT, by.name)
    name = f"outbox-audit-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.{form}"
    pieces = _gathered(at.exports.export(asked, form, by))
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, headers=headers, media_type=MEDIA_TYPES[form])


def _gathered(pieces: Iterator[str], least: int = 65_536) -> Iterator[str]:
    """A row a chunk would cost a system call a row."""
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
    asked, acting = audit_filter(body), actor(who, body)
    return answer(at.audit.prune(asked, body.older_than_days, acting, body.reason, dry_run=body.dry_run))
