"""The commands `index create` and `index check`, on the target index; they print findings and judge nothing."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from outbox.cli import output, session
from outbox.cli.findings import leave_by, print_findings
from outbox.cli.output import Json
from outbox.errors import UsageError

commands = typer.Typer()
index = typer.Typer(no_args_is_help=True, help="Create and check the target index.")
commands.add_typer(index, name="index", rich_help_panel="Install")

Name = Annotated[
    str | None, typer.Argument(help="Index or alias; left out: every target of the settings.", metavar="[NAME]")
]


@index.command()
def create(
    name: Name = None,
    mappings: Annotated[
        Path | None, typer.Option("--mappings", help="File with the mappings, as JSON.", metavar="FILE")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", help="File with more index settings, as JSON.", metavar="FILE")
    ] = None,
    json: Json = False,
) -> None:
    """Make NAME-v1, the alias NAME, and a template for both that forbids automatic creation.

    Deletes are remembered for an hour (gc_deletes), so that a late write cannot bring a document back.

    Examples:
      outbox index create
      outbox index create articles --mappings articles.json
    """
    wanted = _object(mappings, "--mappings"), _object(settings, "--settings")
    with session.indices(session.settings(require_database=False)) as desk:
        made = [desk.create(target, *wanted) for target in ([name] if name else desk.targets)]
    if json:
        output.as_json([each._asdict() for each in made])
    else:
        for each in made:
            output.line(f"created {each.index} behind the alias {each.alias}, with the template {each.template}")


@index.command()
def check(name: Name = None, json: Json = False) -> None:
    """Look at the target: does it take writes, is it an alias, what does it forget, how full is the disk.

    Examples:
      outbox index check
      outbox index check articles --json
    """
    with session.indices(session.settings(require_database=False)) as desk:
        findings = desk.check([name] if name else desk.targets)
    print_findings(findings, json=json)
    leave_by(findings)


def _object(file: Path | None, flag: str) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        found = jsonlib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as wrong:
        raise UsageError(f"{flag}: {file} cannot be read as JSON ({type(wrong).__name__})") from wrong
    if not isinstance(found, dict):
        raise UsageError(f"{flag}: {file} holds no JSON object")
    return found
