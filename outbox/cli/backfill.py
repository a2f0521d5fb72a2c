"""The command `backfill`: fills the index in use from the view. Parses, shows how far it is, prints the end."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from outbox import cli
from outbox.cli import output
from outbox.cli.output import Json
from outbox.cli.progress import meter
from outbox.errors import PartlyDone, UsageError

if TYPE_CHECKING:
    from outbox.policy.backfill import BackfillRun

commands = typer.Typer()


@commands.command(rich_help_panel="Index")
def backfill(
    entity_type: Annotated[
        list[str] | None,
        typer.Option("--type", "--entity-type", help="Only this entity type; may be given again.", metavar="TYPE"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last one stopped.")] = False,
    rate: Annotated[
        float,
        typer.Option("--rate", help="Documents a second at most; 0 = as fast as it goes.", metavar="N"),
    ] = 0.0,
    by: Annotated[str | None, typer.Option("--by", help="Who does this; left out: the user at the shell.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")] = "outbox backfill",
    json: Json = False,
) -> None:
    """Fill the index straight from the view, page by page in key order, beside running projectors.

    For what was there before the first event, or after the index was lost. Safe at any time, and to run twice: a
    document that is newer in the index stays, and nothing is deleted (`outbox repair` removes what is too much). Steps
    back to 2,000 a second while events wait. Killed anywhere, --resume goes on. Needs a key that may write to the
    index. Exit 3 if documents were refused.

    Examples:
      outbox backfill
      outbox backfill --type article --rate 2000
      outbox backfill --resume
    """
    if resume and entity_type:
        raise UsageError("--resume goes on with the entity types of the last one: leave out --type")
    if rate < 0:
        raise UsageError("--rate must be 0 (as fast as it goes) or more documents a second")
    actor = cli.actor(by or cli.person())
    with cli.open_reindex() as desk, meter() as show:
        run = desk.backfill.resume() if resume else desk.backfill.start(entity_type or (), actor, reason)
        if resume:
            output.note(f"going on {run.place}, {run.done:,} done")
        try:
            ended = desk.backfill.run(run, actor, rate, lambda done, of: show("copying", done, of))
        except BaseException:
            show.close()
            output.note("stopped; `outbox backfill --resume` goes on where it was")
            raise
    _print(ended, json=json)
    if ended.refused:
        raise PartlyDone(f"{ended.refused:,} documents were refused: correct them, then `outbox refresh` or `backfill`")


def _print(run: BackfillRun, *, json: bool) -> None:
    if json:
        output.as_json({**asdict(run), "seconds": run.seconds, "rate": run.rate})
        return
    newer = f", {run.newer:,} were newer in the index" if run.newer else ""
    refused = f", {run.refused:,} refused" if run.refused else ""
    output.line(
        f"{run.written:,} documents of {', '.join(run.entity_types)} written{newer}{refused}"
        f" in {run.seconds:,.1f} s ({run.rate:,.0f} a second)"
    )
    for refusal in run.refusals or ():
        output.line(f"refused {refusal['id']}: {refusal['error']}")
