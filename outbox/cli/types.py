"""The command `types` with `set`: what keeps each entity type."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, Yes, flag
from outbox.policy.entity_type import EntityType, KeptBy, Versions

commands = typer.Typer()
types = typer.Typer()
commands.add_typer(types, name="types", rich_help_panel="Install")


@types.callback(invoke_without_command=True)
def show(context: typer.Context, json: Json = False) -> None:
    """Show what keeps each entity type, the view or payloads, and whose its versions are.

    `outbox attach` declares a type, or its first event does, by what its document is written from. An event of the
    other sort fails with the remedy.

    Examples:
      outbox types
      outbox types set article view --by alice --reason "documents join three tables now"
    """
    if context.invoked_subcommand is not None:
        return
    with cli.open_types(cli.settings()) as desk:
        found = desk.list()
    cli.answer([each._asdict() for each in found], json=json)


@types.command("set")
def set_type(
    entity_type: Annotated[str, typer.Argument(help="The entity type, such as article.", metavar="TYPE")],
    kept_by: Annotated[KeptBy, typer.Argument(help="What its documents are written from.")],
    by: cli.By,
    reason: cli.Reason,
    versions: Versions = flag(
        Versions.OURS, "--versions", "Of payloads: drawn from our sequence, or the producer's own."
    ),
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Declare an entity type, or change what keeps it. Audited; safe to kill and to run again.

    From payloads to the view: batches from before are waited for, then the index is filled from the view, and documents
    that the view does not have are removed. From the view to payloads only where the index has no document of the type:
    let ELASTIC_INDEX_MAP name a new index for it first.

    Examples:
      outbox types set note payload --by alice --reason "new type"
      outbox types set article view --by alice --reason "documents join three tables now" --yes
      outbox types set price payload --versions producer --by alice --reason "versions are timestamps"
    """
    wanted = EntityType(kept_by, versions if kept_by is KeptBy.PAYLOAD else Versions.OURS)
    keeper = "the view" if kept_by is KeptBy.VIEW else "payloads"
    cli.confirm(f"Have {entity_type} kept by {keeper}?", yes=yes)
    with cli.open_types(cli.settings()) as desk:
        was = desk.set(entity_type, wanted, cli.actor(by), reason, cli.note)
    record = {"entity_type": entity_type, "kept_by": kept_by, "was": None if was is None else was.kept_by}
    cli.answer(record, f"{entity_type} is kept by {keeper}", json=json)
