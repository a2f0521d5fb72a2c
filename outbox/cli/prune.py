"""The command `prune`: finished events and audit rows that are old enough are removed. It asks and prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from outbox import cli
from outbox.cli import Json, Yes, flag
from outbox.errors import PartlyDone, UsageError

if TYPE_CHECKING:
    from outbox.ops.retention import RetentionPass

commands = typer.Typer()


@commands.command(rich_help_panel="Act")
def prune(
    by: cli.ByLogin,
    older_than_days: float | None = flag(
        None, "--older-than-days", "Age of events; 0 is every finished one. Default: OUTBOX_RETENTION_DAYS.", min=0
    ),
    dry_run: bool = flag(False, "--dry-run", "Only print how many are old enough."),
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove what is old: done and discarded events, and audit rows by OUTBOX_AUDIT_TTL_DAYS, in small steps.

    Failed events are never removed. Of entity types that the view does not keep, each entity's newest event stays, and
    a delete while an older event of its entity does. Exit 3 if there was no time to decide that (`outbox migrate
    --by-entity` helps).

    Examples:
      outbox prune --older-than-days 30 --by alice --dry-run
      outbox prune --older-than-days 30 --by alice --yes
    """
    settings, who = cli.settings(), cli.actor(by)
    days = older_than_days if older_than_days is not None else (settings.retention.days or None)
    audit_days = settings.retention.audit_ttl_days or None
    if days is None and audit_days is None:
        raise UsageError("give --older-than-days: OUTBOX_RETENTION_DAYS and OUTBOX_AUDIT_TTL_DAYS keep everything")
    with cli.open_operations(settings) as desk:
        found = desk.prune.run(days, audit_days, who, dry_run=True)
        if not dry_run and found.due:
            cli.confirm(f"Remove {_old(found)}?", yes=yes)
            found = desk.prune.run(days, audit_days, who)
    events = asdict(found.events) if found.events else {"due": 0, "removed": 0}
    cli.answer({**events, "audit": found.audit}, json=json)
    if found.events is None:
        cli.note("finished events are kept: OUTBOX_RETENTION_DAYS is 0")
    if found.events and found.events.undecided:
        message = f"for {found.events.undecided:,} events there was no time to decide: `outbox migrate --by-entity`"
        raise PartlyDone(message)


def _old(found: RetentionPass) -> str:
    parts = []
    if found.events:
        parts.append(f"up to {found.events.due:,} events from before {cli.shown(found.events.before)}")
    if found.audit:
        parts.append(f"{found.audit.removed:,} audit rows from before {cli.shown(found.audit.before)}")
    return " and ".join(parts)
