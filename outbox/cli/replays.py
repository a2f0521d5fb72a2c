"""The commands `replays list|show|cancel`. They print, and cancel where told."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox.cli import output, replay_words, session
from outbox.cli.output import Json
from outbox.policy.audit import Source

commands = typer.Typer()
replays = typer.Typer(no_args_is_help=True, help="Look at replays, and cancel one.")
commands.add_typer(replays, name="replays", rich_help_panel="Act")

Id = Annotated[str, typer.Argument(help="The replay's id.", metavar="ID")]


@replays.command(name="list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most replays on a page.", min=1, max=500)] = 20,
    after: Annotated[str | None, typer.Option("--after", help="Go on behind a page: the cursor it named.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Only those that are not over.")] = False,
    json: Json = False,
) -> None:
    """List replays, the newest first.

    Examples:
      outbox replays list --live
    """
    with session.operations() as desk:
        page = desk.replays.page(after, limit, live=live)
    if json:
        found = [replay_words.batch_record(batch) for batch in page.replays]
        output.as_json({"replays": found, "next": page.next_cursor})
        return
    rows = [
        (
            b.id,
            b.status,
            b.requested_by,
            b.created_at,
            b.total,
            b.replayed,
            b.skipped,
            b.done,
            b.failed_again,
            b.still_open,
        )
        for b in page.replays
    ]
    columns = ("id", "status", "by", "created", "total", "replayed", "skipped", "done", "failed again", "open")
    empty = "no replay is under way" if live else "nothing was replayed here yet"
    output.table(columns, rows, empty=empty)
    if page.next_cursor:
        output.note(f"more: --after {page.next_cursor}")


@replays.command()
def show(id: Id, json: Json = False) -> None:
    """Show one replay with its counts, and the events that did not simply become done.

    Examples:
      outbox replays show 0199c0de-0000-7000-8000-000000000001
    """
    from outbox.ops import request  # noqa: PLC0415

    with session.operations() as desk:
        detail = desk.replays.show(request.uuid("id", id))
    if json:
        output.as_json(replay_words.batch_record(detail.batch) | {"items": [dict(row) for row in detail.items]})
        return
    output.line(replay_words.told(detail.batch))
    record = replay_words.batch_record(detail.batch)
    names = (
        "requested_by",
        "requested_reason",
        "filter",
        "rate",
        "created_at",
        "dispatched_at",
        "settled_at",
        "poll_count",
    )
    output.table(("", ""), [(name, record[name]) for name in names])
    rows = [
        (row["event_id"], row["skip_reason"] or row["outcome"] or row["status"] or row["state"], row["error_reason"])
        for row in detail.items
    ]
    if rows:
        output.table(("not done", "why", "reason"), rows)


@replays.command()
def cancel(
    id: Id,
    by: Annotated[str, typer.Option("--by", help="Who you are; written down.", metavar="NAME")],
    reason: Annotated[str, typer.Option("--reason", help="Why; written down.", metavar="TEXT")],
    json: Json = False,
) -> None:
    """Stop a replay. Events that it has moved stay moved; the rest stay failed.

    Examples:
      outbox replays cancel 0199c0de-0000-7000-8000-000000000001 --by alice --reason "wrong filter"
    """
    from outbox.ops import request  # noqa: PLC0415

    with session.operations() as desk:
        batch = desk.replays.cancel(request.uuid("id", id), request.actor(by, Source.CLI), reason)
    if json:
        output.as_json(replay_words.batch_record(batch))
    else:
        replay_words.print_batch(batch)
