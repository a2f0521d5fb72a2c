"""The commands `pause` and `resume`, stored for all daemons."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, flag, option

commands = typer.Typer()

EntityType = Annotated[str | None, option("--entity-type -t", "Only this entity type.", "TYPE")]


@commands.command(rich_help_panel="Act")
def pause(by: cli.By, reason: cli.Reason, entity_type: EntityType = None, json: Json = False) -> None:
    """Stop all projectors from claiming, within two seconds; what is in flight is finished. Nothing is lost.

    A pause of one entity type needs `outbox migrate --by-type` (exit 78 without).

    Examples:
      outbox pause --by alice --reason "reindexing"
      outbox pause --entity-type article --by alice --reason "bad mapping"
    """
    with cli.open_desk(cli.settings()) as desk:
        said = desk.pauses.pause(cli.actor(by), reason, entity_type)
    cli.answer(dict(said), f"paused {entity_type or 'everything'}; `outbox resume` ends it", json=json)


@commands.command(rich_help_panel="Act")
def resume(
    by: cli.By,
    reason: cli.Reason,
    entity_type: EntityType = None,
    let_fail: str | None = flag(None, "--let-fail", "Lift the brake for this fingerprint, for an hour.", "FINGERPRINT"),
    json: Json = False,
) -> None:
    """End a pause; or let the events of one fingerprint fail that the brake holds back.

    Examples:
      outbox resume --by alice --reason "mapping fixed"
      outbox resume --let-fail 5d4ed31ca13675e1 --by alice --reason "these are really broken"
    """
    with cli.open_desk(cli.settings()) as desk:
        if let_fail is not None:
            said = desk.pauses.let_fail(let_fail, cli.actor(by), reason)
            message = f"events with fingerprint {let_fail} may fail, until {cli.shown(said['until'])}"
        else:
            ended = desk.pauses.resume(cli.actor(by), reason, entity_type)
            said = ended or {"scope": entity_type or "*", "was_paused": False}
            message = f"{entity_type or 'everything'} resumed" if ended else "nothing was paused"
    cli.answer(dict(said), message, json=json)
