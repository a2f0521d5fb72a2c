"""The command `prune`: finished events that are old enough are removed. It asks and prints."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from outbox.cli import output, session
from outbox.cli.output import Json, Yes
from outbox.errors import PartlyDone, UsageError
from outbox.policy.audit import Source

commands = typer.Typer()


@commands.command(rich_help_panel="Act")
def prune(
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="Who you are; written down.",
            metavar="NAME",
            default_factory=getpass.getuser,
            show_default="your login name",
        ),
    ],
    older_than_days: Annotated[
        float | None,
        typer.Option("--older-than-days", help="0 is all that are finished; OUTBOX_RETENTION_DAYS if not said.", min=0),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many are old enough.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove done and discarded events that ended long ago, in small steps. Failed events are never removed.

    Deletes that an older event may still need stay; without the view OUTBOX_DOCUMENTS, so does each entity's newest
    event. Exit 3 where it could not be told in time (`outbox migrate --by-entity` helps).

    Examples:
      outbox prune --older-than-days 30 --by alice --dry-run
      outbox prune --older-than-days 30 --by alice --yes
    """
    from outbox.ops import request  # noqa: PLC0415

    settings, who = session.settings(), request.actor(by, Source.CLI)
    days = settings.retention.days if older_than_days is None else older_than_days
    if older_than_days is None and not days:
        raise UsageError("say --older-than-days: OUTBOX_RETENTION_DAYS is 0, which keeps everything")
    with session.operations(settings) as desk:
        found = desk.prune.prune(days, who, dry_run=True)
        if not dry_run and found.due:
            output.confirm(f"Remove up to {found.due:,} events from before {output.shown(found.before)}?", yes=yes)
            found = desk.prune.prune(days, who)
    if json:
        output.as_json(found)
    elif found.dry_run:
        output.line(f"{found.due:,} events are old enough; some may have to stay")
    else:
        output.line(f"removed {found.removed:,} of {found.due:,}; {found.kept:,} stay because versions need them")
    if found.undecided:
        raise PartlyDone(f"for {found.undecided:,} events it could not be told in time: `outbox migrate --by-entity`")
