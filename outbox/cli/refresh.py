"""The command `refresh`: writes refresh events for many entities. The projectors read the view and do the rest."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from outbox import cli
from outbox.cli import output
from outbox.cli.output import Json, Yes
from outbox.cli.progress import meter
from outbox.errors import UsageError

if TYPE_CHECKING:
    from outbox.ops.reindex.refresh import RefreshDesk, Refreshed, RefreshOptions

commands = typer.Typer()
ASKS_ABOVE = 1_000


@commands.command(rich_help_panel="Index")
def refresh(
    entity_type: Annotated[
        str | None,
        typer.Option("--type", "--entity-type", help="Entity type; left out with --all: every type.", metavar="TYPE"),
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option("--id", help="An entity's id; may be given again.", metavar="ID")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="SQL condition over columns of the view (entity_id, document).", metavar="SQL"),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All entities of the type, or of every type.")] = False,
    after: Annotated[
        str | None, typer.Option("--after", help="Go on behind this id (ID, or TYPE:ID without --type).", metavar="ID")
    ] = None,
    routing: Annotated[
        str | None, typer.Option("--routing", help="With --id: where its document is, if the view does not say.")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="Events a second at most; 0 = no limit.", metavar="N")] = 1000.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who does this; left out: the user at the shell.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")] = "outbox refresh",
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Write refresh events: the projectors make each document equal to what the view says now, or delete it.

    For some thousands of entities, or where the projectors should do the work; `outbox backfill` fills a whole index
    faster. Documents of entities that are no longer in the view are found by `outbox repair`; an --id that is gone is
    deleted. Safe to run twice. Slows down while events wait. Stopped by Ctrl-C, it says how to go on. Audited by step.

    --where is one SQL expression, run read-only with your own database rights and within a minute. It may name every
    column of the view and use subqueries.

    Examples:
      outbox refresh --type article --id 17 --id 18
      outbox refresh --type article --where "(document->>'price')::numeric > 100" --dry-run
      outbox refresh --type article --where "entity_id in (select id from articles where author_id = 7)"
      outbox refresh --all --yes && outbox wait --caught-up
    """
    if rate < 0:
        raise UsageError("--rate must be 0 (no limit) or more events a second")
    kind, start = _start(entity_type, after)
    _check(kind, id, where, everything, after, routing)
    with cli.open_reindex() as desk, meter() as show:
        wish = _wish(desk.refresh, kind, id, where, start, routing, all_types=entity_type is None)
        counted = sum(desk.refresh.count(wish).values())
        if dry_run:
            _print_count(wish, counted, json=json)
            return
        if counted > ASKS_ABOVE:
            output.confirm(f"Write up to {counted:,} refreshes of {', '.join(wish.types)}?", yes=yes)
        done = desk.refresh.begin()
        try:
            actor = cli.actor(by or cli.person())
            desk.refresh.write(wish, actor, reason, done, rate=rate, on_step=lambda n: show("writing", n, counted))
        except BaseException:
            show.close()
            output.note(_stopped(done, wish, entity_type))
            raise
    _print(done, json=json)


def _start(entity_type: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Where to begin: the type and the id behind which to go on."""
    if after is None or entity_type is not None:
        return entity_type, after
    named, colon, id = after.partition(":")
    if not colon or not named or not id:
        raise UsageError("--after without --type is TYPE:ID")
    return named, id


def _check(
    kind: str | None, ids: list[str] | None, where: str | None, everything: bool, after: str | None, routing: str | None
) -> None:
    if bool(ids) + (where is not None) + everything != 1:
        raise UsageError("say one of --id, --where and --all")
    if kind is None and not everything:
        raise UsageError("--id and --where need --type")
    if ids and after is not None:
        raise UsageError("--after goes with --where and --all, not with --id")
    if routing is not None and not ids:
        raise UsageError("--routing goes with --id only")


def _wish(
    desk: RefreshDesk,
    kind: str | None,
    ids: list[str] | None,
    where: str | None,
    after: str | None,
    routing: str | None,
    *,
    all_types: bool,
) -> RefreshOptions:
    from outbox.ops.reindex.refresh import RefreshOptions  # noqa: PLC0415

    types = desk.types([kind] if kind is not None and not all_types else [])
    if all_types and kind is not None:
        types = [each for each in types if each >= kind]
        after = after if types[:1] == [kind] else None
    return RefreshOptions(types, tuple(dict.fromkeys(ids or ())), where, after, routing)


def _print_count(wish: RefreshOptions, counted: int, *, json: bool) -> None:
    if json:
        output.as_json({"dry_run": True, "entity_types": wish.types, "count": counted})
    else:
        output.line(f"{counted:,} refreshes of {', '.join(wish.types) or 'nothing'} would be written")


def _print(done: Refreshed, *, json: bool) -> None:
    if json:
        output.as_json({"dry_run": False, "batch": done.batch, "written": done.written, "by_type": done.by_type})
    else:
        output.line(f"{done.written:,} refreshes written; batch {done.batch}")
        output.note("`outbox wait --caught-up` waits until they are projected")


def _stopped(done: Refreshed, wish: RefreshOptions, entity_type: str | None) -> str:
    """With the command that goes on. Ids are few: they are all given again."""
    told = f"stopped after {done.written:,} refreshes"
    if done.last is None or wish.ids:
        return f"{told}; run the same command again: twice does no harm"
    which = ["--all"] if wish.condition is None else ["--where", wish.condition]
    if entity_type is not None:
        words = ["--type", entity_type, *which, "--after", done.last.entity_id]
    else:
        words = [*which, "--after", f"{done.last.entity_type}:{done.last.entity_id}"]
    return f"{told}; go on with: outbox refresh {shlex.join(words)}"
