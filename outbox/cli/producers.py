"""The commands `attach` and `detach`: a table's changes become events. They hold no SQL."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox.cli import output, session
from outbox.cli.output import Json, Yes

commands = typer.Typer()
Table = Annotated[str, typer.Argument(help="The table, as in SQL; with its schema if needed.", metavar="TABLE")]


@commands.command(rich_help_panel="Install")
def attach(
    table: Table,
    entity_type: Annotated[str, typer.Option("--type", help="Entity type of its rows, such as article.")],
    id_column: Annotated[str, typer.Option("--id", help="Column that names one row.", metavar="COLUMN")],
    routing: Annotated[
        str | None, typer.Option("--routing", help="Column with the Elasticsearch routing.", metavar="COLUMN")
    ] = None,
    payload: Annotated[
        bool, typer.Option("--payload", help="Put the row itself into the event instead of looking it up later.")
    ] = False,
    json: Json = False,
) -> None:
    """Install a trigger that writes one event for every changed row, in the same transaction; deletes included.

    Without --payload the document is looked up in the view OUTBOX_DOCUMENTS (search_documents). TRUNCATE is refused
    while the table is attached. Rows that are there already are not sent: touch them with an UPDATE.

    Examples:
      outbox attach shop.articles --type article --id id
      outbox attach orders --type order --id number --routing customer --payload
    """
    with session.desk() as desk:
        done = desk.producers.attach(
            table, entity_type=entity_type, id_column=id_column, routing_column=routing, payload=payload
        )
    if json:
        output.as_json(done)
    else:
        how = "with its payload" if payload else "looked up in the view"
        output.line(f"attached {done.table}: each change is an event of type {done.entity_type}, {how}")
    if done.advice:
        output.note(f"note: {done.advice}")


@commands.command(rich_help_panel="Install")
def detach(table: Table, yes: Yes = False, json: Json = False) -> None:
    """Remove the trigger; changes of the table are no longer projected. Events that were written stay.

    Examples:
      outbox detach shop.articles --yes
    """
    output.confirm(f"Stop projecting the changes of {table}?", yes=yes)
    with session.desk() as desk:
        desk.producers.detach(table)
    if json:
        output.as_json({"detached": table})
    else:
        output.line(f"detached {table}")
