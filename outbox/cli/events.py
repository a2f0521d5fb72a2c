"""The commands that read events: `list`, `show`, and `explain-error`, which says how a failure is classified."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from outbox import cli
from outbox.cli import Json, flag
from outbox.errors import UsageError
from outbox.policy.event import Status

if TYPE_CHECKING:
    from outbox.ops.events import EventDetail
    from outbox.ops.stored_event import StoredEvent

commands = typer.Typer()
LISTED = (
    "id", "status", "entity_type", "entity_id", "op", "event_version", "attempts", "created_at", "next_retry_at",
    "error_reason", "error",
)  # fmt: skip


@commands.command(name="list", rich_help_panel="Inspect")
@cli.filters_events()
def list_(
    status: list[str] | None = flag(None, "--status -s", "State; repeatable, `all` for every one.", "STATUS"),
    limit: int = flag(50, "--limit -n", "Most events on a page.", min=1, max=500),
    after: str = flag("", "--after", "Continue after a page: its cursor.", show_default=False),
    raw: cli.Raw | None = None,
    json: Json = False,
) -> None:
    """List events: what is open or failed, unless --status, --id or --entity-id ask for more. The newest first.

    Open events come first, then failed, done and discarded ones.

    Examples:
      outbox list
      outbox list --status failed --error-reason es_rejected_document --since 2h
      outbox list --entity-type article --entity-id 42 --json
    """
    asked = cli.event_filter(raw or {})
    states = [str(each) for each in Status] if "all" in (status or ()) else (status or ())
    with cli.open_desk(cli.settings()) as desk:
        page = desk.browse.page(asked, states, limit, after)
    found = [_record(event) for event in page.events]
    record = {"events": found, "next": page.next or None, "remark": page.remark or None}
    empty = "no event fits" if states or not asked.is_empty else "nothing is open or failed"
    cli.listed(record, LISTED, empty, json=json)


def _record(event: StoredEvent) -> dict[str, Any]:
    about = {name: value for name, value in asdict(event).items() if name != "error_detail"}
    return {**about, "read": event.read or None, "trace_id": event.trace_id}


@commands.command(rich_help_panel="Inspect")
def show(
    id: Annotated[str, typer.Argument(help="The event's id.", metavar="ID")],
    payload: bool = flag(True, "--payload/--no-payload", "Show the payload."),
    json: Json = False,
) -> None:
    """Show one event with all that is recorded: state, times, error, payload, attempts, and its entity's others.

    Fields named in OUTBOX_REDACT_FIELDS are masked. Numbers are shown as the producer wrote them.

    Examples:
      outbox show 0190f5a2-7c1e-7d3b-9a54-3f6f0c1d2e3f
      outbox show 0190f5a2-7c1e-7d3b-9a54-3f6f0c1d2e3f --json | jq .payload
    """
    with cli.open_desk(cli.settings()) as desk:
        detail = desk.browse.show(event_id(id))
    cli.answer(_as_json(detail, payload=payload), lambda: _print(detail, payload=payload), json=json)


def event_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(f"{text[:80]!r} is not an event's id, which is a uuid") from None


def _as_json(detail: EventDetail, *, payload: bool) -> dict[str, Any]:
    return {
        **_record(detail.event),
        "index": detail.index,
        "document_id": detail.document_id,
        "payload_bytes": detail.payload_bytes,
        **({"payload": cli.raw_json(detail.payload)} if payload else {}),
        "error_detail": cli.raw_json(detail.error_detail),
        "attempts_log": [{**row, "detail": cli.raw_json(row["detail"])} for row in detail.attempts],
        "acts": [dict(row) for row in detail.acts],
        "related": [dict(row) for row in detail.related],
    }


def _print(detail: EventDetail, *, payload: bool) -> None:
    cli.tables({**_as_json(detail, payload=False), "fan-out": detail.event.fanned_out})
    if payload and detail.payload is not None:
        cli.line(f"\npayload\n{cli.visible(detail.payload.decode())}")


@commands.command(name="explain-error", rich_help_panel="Inspect")
def explain_error(
    reply: Annotated[
        str | None, typer.Argument(help="The reply as JSON; left out or -: read from stdin.", metavar="[REPLY]")
    ] = None,
    id: str | None = flag(None, "--id", "Explain this stored event instead.", "ID"),
    status: int | None = flag(None, "--status", "HTTP status, where the reply does not hold it.", "CODE"),
    json: Json = False,
) -> None:
    """Say how a reply of Elasticsearch is classified, by which rule, and what happens to the event.

    Takes a whole bulk reply, one item of it, an error object, or the body of a refused request.

    Examples:
      outbox explain-error --id 0190f5a2-7c1e-7d3b-9a54-3f6f0c1d2e3f
      outbox explain-error --status 429 '{"type": "circuit_breaking_exception", "reason": "too large"}'
      curl -s localhost:9200/_bulk ... | outbox explain-error
    """
    from outbox.ops import explain  # noqa: PLC0415  (orjson and the rules, only here)

    if id is not None:
        with cli.open_desk(cli.settings()) as desk:
            detail = desk.browse.show(event_id(id))
        verdicts = [explain.explain_stored(detail.event, detail.error_detail)]
    else:
        verdicts = explain.explain_reply(_read_reply(reply), status)
    if json:
        cli.as_json([asdict(verdict) for verdict in verdicts])
        return
    for verdict in verdicts:
        cli.tables(verdict)


def _read_reply(reply: str | None) -> str:
    if reply not in (None, "-"):
        return str(reply)
    if sys.stdin.isatty():
        raise UsageError("give the reply as an argument or on stdin, or an event with --id")
    return sys.stdin.read()
