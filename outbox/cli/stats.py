"""The command `stats`: failures by type, reason, kind and hour, and what became of events. It reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from outbox.cli import filters, output, session
from outbox.cli.output import Json

if TYPE_CHECKING:
    from outbox.ops.failures import FailureGroup, Stats

commands = typer.Typer()


@commands.command(rich_help_panel="Look")
def stats(
    hours: Annotated[int, typer.Option("--hours", help="How far back the hours go.", min=1, max=2160)] = 24,
    groups: Annotated[bool, typer.Option("--groups", help="Failures by fingerprint instead.")] = False,
    entity_type: filters.EntityType = None,
    error_reason: filters.ErrorReason = None,
    json: Json = False,
) -> None:
    """Show failures by entity type, reason and kind, by hour, and what became of events. Never reads done rows.

    Examples:
      outbox stats
      outbox stats --groups --entity-type article
    """
    asked = filters.event_filter(entity_type=entity_type, error_reason=error_reason)
    with session.operations() as desk:
        if groups:
            found = desk.failures.groups(asked)
            if json:
                output.as_json({"groups": [asdict(each) for each in found]})
            else:
                _print_groups(found)
            return
        look = desk.stats.look(hours)
    if json:
        output.as_json(asdict(look) | {"failed": look.failed._asdict()})
    else:
        _print(look)


def _print_groups(found: Sequence[FailureGroup]) -> None:
    rows = [_group(each) for each in found]
    output.table(("fingerprint", "events", "failed again", "last day", "types", "reason", "last failed", "error"), rows)


def _group(each: FailureGroup) -> tuple[object, ...]:
    change = f"{each.last_day} ({each.last_day - each.day_before:+})"
    types = ",".join(each.entity_types[:5])
    error = (each.sample_error or "")[:100]
    return each.fingerprint, each.count, each.failed_again, change, types, each.error_reason, each.last_failed_at, error


def _print(look: Stats) -> None:
    failed = look.failed
    output.line(f"{failed.total:,} failed now, {look.failed_again:,} of them after a replay")
    if failed.total:
        output.line(f"from {output.shown(look.oldest)} to {output.shown(look.newest)}")
        output.line(f"{look.last_day:,} in the last day, {look.day_before:,} in the day before")
    for title, counts in (
        ("entity type", failed.by_entity_type),
        ("reason", failed.by_reason),
        ("failure type", failed.by_failure_type),
    ):
        _counts(title, counts, "failed")
    _counts("entity type", look.finished, "done")
    _counts("entity type", look.discarded, "discarded")
    if look.work:
        output.line()
        names = ("done", "failed", "retried", "released")
        rows = [(hour.hour, *(hour.outcomes.get(name, 0) for name in names)) for hour in look.work]
        output.table(("hour", *names), rows)


def _counts(title: str, counts: Mapping[str, int], word: str) -> None:
    if counts:
        output.line()
        output.table((title, word), [(name, f"{n:,}") for name, n in list(counts.items())[:20]])
