"""The commands `replays list|show|cancel`, and how a replay and its plan are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outbox import cli
from outbox.cli import options, output
from outbox.cli.output import Json
from outbox.policy.audit import Source
from outbox.policy.replay import ReplayBatch

if TYPE_CHECKING:
    from outbox.ops.replay.plan import Plan

commands = typer.Typer()
replays = typer.Typer(no_args_is_help=True, help="List, show and cancel replays.")
commands.add_typer(replays, name="replays", rich_help_panel="Act")

Id = Annotated[str, typer.Argument(help="The replay's id.", metavar="ID")]


@replays.command(name="list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most replays on a page.", min=1, max=500)] = 20,
    after: Annotated[str | None, typer.Option("--after", help="Continue after a page: its cursor.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Only those that are not over.")] = False,
    json: Json = False,
) -> None:
    """List replays, the newest first.

    Examples:
      outbox replays list --live
    """
    with cli.open_operations() as desk:
        page = desk.replays.page(after, limit, live=live)
    if json:
        found = [batch_record(batch) for batch in page.replays]
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
    from outbox.ops import inputs  # noqa: PLC0415

    with cli.open_operations() as desk:
        detail = desk.replays.show(inputs.uuid("id", id))
    if json:
        output.as_json(batch_record(detail.batch) | {"items": [dict(row) for row in detail.items]})
        return
    output.line(summary(detail.batch))
    record = batch_record(detail.batch)
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
    by: options.By,
    reason: options.Reason,
    json: Json = False,
) -> None:
    """Stop a replay. Events that it has moved stay moved; the rest stay failed.

    Examples:
      outbox replays cancel 0199c0de-0000-7000-8000-000000000001 --by alice --reason "wrong filter"
    """
    from outbox.ops import inputs  # noqa: PLC0415

    with cli.open_operations() as desk:
        batch = desk.replays.cancel(inputs.uuid("id", id), inputs.actor(by, Source.CLI), reason)
    if json:
        output.as_json(batch_record(batch))
    else:
        print_batch(batch)


_COUNTED = 10_000


def batch_record(batch: ReplayBatch) -> dict[str, Any]:
    """Everything; of the webhook's address only its host, because its path is often a secret."""
    record = asdict(batch) | {"discarded": batch.discarded, "left": batch.left}
    return record | {"webhook_url": record.pop("webhook_to")}


def summary(batch: ReplayBatch) -> str:
    """One line: what moved, and how it ended so far."""
    parts = [f"replay {batch.id} is {batch.status}", f"{batch.replayed:,} of {batch.total:,} replayed"]
    counts = {"skipped": batch.skipped, "done": batch.done, "failed again": batch.failed_again}
    counts |= {"open": batch.still_open, "discarded": batch.discarded}
    parts += [f"{n:,} {word}" for word, n in counts.items() if n]
    return ", ".join([*parts, *([batch.reason] if batch.reason else [])])


def print_batch(batch: ReplayBatch) -> None:
    output.line(summary(batch))
    if not batch.is_over:
        output.note(f"follow it with: outbox replays show {batch.id}")


def plan_record(plan: Plan) -> dict[str, Any]:
    """The pinned ids are in the plan's file."""
    return {name: value for name, value in asdict(plan).items() if name != "ids"}


def print_plan(plan: Plan) -> None:
    more = "+" if plan.matched > _COUNTED else ""
    output.line(f"{plan.total:,} events would be replayed; {min(plan.matched, _COUNTED):,}{more} match")
    if plan.skipped:
        output.line("skipped: " + ", ".join(f"{n:,} {state}" for state, n in plan.skipped.items()))
    if not plan.total:
        return
    output.line(f"failed from {output.shown(plan.oldest)} to {output.shown(plan.newest)}")
    output.line(_superseded(plan))
    for title, counts in (
        ("entity type", plan.by_entity_type),
        ("error reason", plan.by_error_reason),
        ("fingerprint", plan.by_fingerprint),
    ):
        _print_counts(title, counts)
    rows = [
        (
            row["id"],
            f"{row['entity_type']}:{row['entity_id']}",
            row["failed_at"],
            row["error_reason"],
            _cut(row["error"]),
        )
        for row in plan.sample
    ]
    output.table(("first ones", "entity", "failed", "reason", "error"), rows)


def _superseded(plan: Plan) -> str:
    if plan.superseded is None:
        return "superseded: not known, Elasticsearch does not answer"
    of = "" if plan.compared >= plan.total else f" of the first {plan.compared:,}"
    return f"superseded: {plan.superseded:,}{of} have a newer version in Elasticsearch and will change nothing"


def _print_counts(title: str, counts: Mapping[str, int]) -> None:
    output.line()
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    output.table((title, "events"), [(name, f"{n:,}") for name, n in ordered[:20]])
    if len(ordered) > 20:
        output.line(f"and {len(ordered) - 20} more")


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= 100 else text[:99] + "…"
