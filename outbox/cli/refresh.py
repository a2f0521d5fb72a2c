"""The commands `backfill`, which fills the index from the view, and `refresh`, which writes refresh events."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from outbox import cli
from outbox.cli import Engine, Json, Master, Processes, Yes, flag
from outbox.cli.progress import meter
from outbox.errors import PartlyDone, UsageError

if TYPE_CHECKING:
    from outbox.policy.reindex import BackfillRun
    from outbox.reindex.refresh import RefreshDesk, Refreshed, RefreshOptions

commands = typer.Typer()
ASKS_ABOVE = 1_000


@commands.command(rich_help_panel="Index")
def refresh(
    entity_type: str | None = flag(
        None, "--type --entity-type", "Entity type; left out with --all: every type.", "TYPE"
    ),
    id: list[str] | None = flag(None, "--id", "An entity's id; may be given again.", "ID"),
    where: str | None = flag(None, "--where", "SQL condition over columns of the view (entity_id, document).", "SQL"),
    everything: bool = flag(False, "--all", "All entities of the type, or of every type."),
    after: str | None = flag(None, "--after", "Continue after this entity.", "TYPE:ID"),
    rate: float = flag(1000.0, "--rate", "Most events per second; 0: no limit.", "N"),
    dry_run: bool = flag(False, "--dry-run", "Only print how many there are."),
    by: cli.ByShell = None,
    reason: cli.Why = "outbox refresh",
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Write refresh events: the projectors make each document equal to what the view says now, or delete it.

    For some thousands of entities, or where the projectors should do the work; `outbox backfill` fills a whole index
    faster. Documents of entities that are no longer in the view are found by `outbox repair`; an --id that is gone is
    deleted. Safe to run twice. Slows down while events wait. Stopped by Ctrl-C, it prints how to continue. Audited.

    --where is one SQL expression, run read-only with your own database rights and within a minute. It may name every
    column of the view and use subqueries.

    Examples:
      outbox refresh --type article --id 17 --id 18
      outbox refresh --type article --where "(document->>'price')::numeric > 100" --dry-run
      outbox refresh --all --yes && outbox wait --caught-up
    """
    if rate < 0:
        raise UsageError("--rate must be 0 (no limit) or more events per second")
    _check(entity_type, id, where, everything, after)
    with cli.open_reindexing(cli.settings()) as desk, meter() as show:
        wish = _wish(desk.refresh, entity_type, id, where, after)
        counted = sum(desk.refresh.count(wish).values())
        if dry_run:
            told = f"{counted:,} refreshes of {', '.join(wish.types) or 'nothing'} would be written"
            cli.answer({"dry_run": True, "entity_types": wish.types, "count": counted}, told, json=json)
            return
        if counted > ASKS_ABOVE:
            cli.confirm(f"Write up to {counted:,} refreshes of {', '.join(wish.types)}?", yes=yes)
        done = desk.refresh.begin()
        try:
            actor = cli.actor(by or cli.person())
            desk.refresh.write(wish, actor, reason, done, rate=rate, on_step=lambda n: show("writing", n, counted))
        except BaseException:
            show.close()
            cli.note(_stopped(done, wish, entity_type))
            raise
    record = {"dry_run": False, "batch": done.batch, "written": done.written, "by_type": done.by_type}
    cli.answer(record, f"{done.written:,} refreshes written; batch {done.batch}", json=json)
    cli.note("`outbox wait --caught-up` waits until they are projected")


def _check(kind: str | None, ids: list[str] | None, where: str | None, everything: bool, after: str | None) -> None:
    if bool(ids) + (where is not None) + everything != 1:
        raise UsageError("give one of --id, --where and --all")
    if kind is None and not everything:
        raise UsageError("--id and --where need --type")
    if ids and after is not None:
        raise UsageError("--after goes with --where and --all, not with --id")


def _wish(
    desk: RefreshDesk, entity_type: str | None, ids: list[str] | None, where: str | None, after: str | None
) -> RefreshOptions:
    from outbox.policy.drift import Key  # noqa: PLC0415
    from outbox.reindex.refresh import RefreshOptions  # noqa: PLC0415

    kind, _, id = (after or "").partition(":")
    if after is not None and not (kind and id):
        raise UsageError("--after is TYPE:ID")
    types = desk.types([] if entity_type is None else [entity_type])
    return RefreshOptions(types, tuple(dict.fromkeys(ids or ())), where, Key(kind, id) if after else None)


def _stopped(done: Refreshed, wish: RefreshOptions, entity_type: str | None) -> str:
    """With the command that goes on. Ids are few: they are all given again."""
    stopped = f"stopped after {done.written:,} refreshes"
    if done.last is None or wish.ids:
        return f"{stopped}; run the same command again: twice does no harm"
    which = ["--all"] if wish.condition is None else ["--where", wish.condition]
    words = [*([] if entity_type is None else ["--type", entity_type]), *which, "--after", ":".join(done.last)]
    return f"{stopped}; continue with: outbox refresh {shlex.join(words)}"


@commands.command(rich_help_panel="Index")
def backfill(
    entity_type: list[str] | None = flag(
        None, "--type --entity-type", "Only this entity type; may be given again.", "TYPE"
    ),
    resume: bool = flag(False, "--resume", "Continue where the last one stopped."),
    rate: float = flag(0.0, "--rate", "Most documents per second; 0: no limit.", "N"),
    parallel: Processes = None,
    engine: Engine = "local",
    master: Master = None,
    by: cli.ByShell = None,
    reason: cli.Why = "outbox backfill",
    json: Json = False,
) -> None:
    """Fill the index straight from the view, page by page in key order, beside running projectors.

    For what was there before the first event, or after the index was lost. Safe at any time, and to run twice: a
    document that is newer in the index stays, and nothing is deleted (`outbox repair` removes what is too much). Slows
    down to 2,000 per second while events wait. Killed anywhere, --resume continues. Needs a key that may write to the
    index. Exit 3 if documents were refused.

    Examples:
      outbox backfill
      outbox backfill --parallel 4
      outbox backfill --resume
    """
    if resume and entity_type:
        raise UsageError("--resume continues with the entity types of the last one: leave out --type")
    if rate < 0:
        raise UsageError("--rate must be 0 (no limit) or more documents per second")
    actor = cli.actor(by or cli.person())
    with cli.open_reindexing(cli.settings()) as desk, meter() as show:
        cli.spread_over(desk, parallel, engine, master)
        run = desk.backfill.resume() if resume else desk.backfill.start(entity_type or (), actor, reason)
        if resume:
            cli.note(f"going on with the parts that are left, {run.done:,} done")
        try:
            ended = desk.backfill.run(run, actor, rate, lambda done, of, more: show("copying", done, of, more))
        except BaseException:
            show.close()
            cli.note("stopped; `outbox backfill --resume` continues where it was")
            raise
    _print_backfill(ended, json=json)
    if ended.refused:
        raise PartlyDone(f"{ended.refused:,} documents were refused: correct them, then `outbox refresh` or `backfill`")


def _print_backfill(run: BackfillRun, *, json: bool) -> None:
    record = {**asdict(run), "seconds": run.seconds, "rate": run.rate}
    told = f"{run.written:,} documents of {', '.join(run.entity_types)} written in {run.seconds:,.1f} s"
    cli.answer(record, lambda: cli.tables(record, told), json=json)
