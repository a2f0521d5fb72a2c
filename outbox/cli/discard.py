"""The commands `discard` (one event: the runbook's *forget*) and `flush` (all that match). They ask and print."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, Yes, option
from outbox.policy import inputs

commands = typer.Typer()


@commands.command(rich_help_panel="Act")
def discard(
    id: Annotated[str, typer.Argument(help="The event's id.", metavar="ID")],
    by: cli.By,
    reason: cli.Reason,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Discard one pending or failed event. The row stays; `outbox replay --id` brings it back.

    Examples:
      outbox discard 0199c0de-0000-7000-8000-000000000001 --by alice --reason "test data" --yes
    """
    event_id, who = inputs.uuid("id", id), cli.actor(by)
    cli.confirm(f"Discard event {event_id}?", yes=yes)
    with cli.open_operations(cli.settings()) as desk:
        done = desk.discards.discard(event_id, who, reason)
    cli.answer(done, f"discarded {done.id} ({done.entity_type}:{done.entity_id})", json=json)


@commands.command(rich_help_panel="Act")
@cli.filters_events()
def flush(
    expect: Annotated[int, option("--expect", "How many events you expect to match.", "N")],
    by: cli.By,
    reason: cli.Reason,
    approved_by: Annotated[str, option("--approved-by", "Who agrees; not you.", "NAME")],
    raw: cli.Raw,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Discard all failed events that match, if there are exactly as many as expected. The rows stay.

    Examples:
      outbox list --status failed --fingerprint 5d4ed31ca13675e1
      outbox flush --fingerprint 5d4ed31ca13675e1 --expect 37 --by alice --approved-by bob --reason "junk" --yes
    """
    asked = cli.event_filter(raw)
    who = cli.actor(by)
    cli.confirm(f"Discard {expect:,} failed events ({inputs.described(asked)})?", yes=yes)
    with cli.open_operations(cli.settings()) as desk:
        done = desk.discards.flush(asked, expect, who, reason, approved_by)
    cli.answer(done, f"discarded {done.count:,} events; `outbox audit list --batch-id {done.id}` lists them", json=json)
