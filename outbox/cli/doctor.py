"""The commands `doctor`, `index create` and `index check`: they print findings and exit by them. They fix nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, flag
from outbox.ports import Finding, Level

_MARKS = {Level.OK: ("ok", "green"), Level.WARN: ("warning", "yellow"), Level.BAD: ("problem", "bold red")}
_UNSEEN = ("unknown", "cyan")


def print_findings(findings: Iterable[Finding], *, json: bool) -> list[Finding]:
    """Printed as they are made, so that a slow check does not hide the earlier ones; as JSON all at once."""
    if json:
        found = list(findings)
        cli.as_json({"ok": all(f.level is not Level.BAD for f in found), "findings": [_record(f) for f in found]})
        return found
    return [_printed(finding) for finding in findings]


def _record(finding: Finding) -> dict[str, str]:
    verdict, _ = _MARKS.get(finding.level, _UNSEEN)
    return {"name": finding.name, "verdict": verdict, "detail": finding.detail, "remedy": finding.remedy}


def _printed(finding: Finding) -> Finding:
    from rich.text import Text  # noqa: PLC0415

    verdict, style = _MARKS.get(finding.level, _UNSEEN)
    line = Text.assemble((f"{verdict:<8}", style), f" {finding.name:<14} {cli.shown(finding.detail)}")
    if finding.remedy and finding.level is not Level.OK:
        line.append(f"\n{'':<23} -> {cli.visible(finding.remedy)}", style="dim")
    cli.printer().print(line)
    return finding


def leave_by(findings: Iterable[Finding]) -> None:
    """Warnings are advice; a problem makes the command fail."""
    if any(finding.level is Level.BAD for finding in findings):
        raise typer.Exit(1)


commands = typer.Typer()


@commands.command(rich_help_panel="Inspect")
def doctor(json: Json = False) -> None:
    """Check the setup: servers, schema, rights, view, index, workers. Exit 1 if there is a problem.

    Versions, rights, schema, slow indexes, limits, clock, the view and its plan, the oldest open document against the
    mapping (nothing is sent), the target index, disk, versions, workers, failures. With OUTBOX_SOURCE=kafka also the
    topic: gaps, retention, members of the group, the newest records; with KAFKA_CONNECT_URL the connector. Changes
    nothing.

    Examples:
      outbox doctor
      outbox doctor --json | jq '.findings[] | select(.verdict != "ok")'
    """
    with cli.open_doctor(cli.settings()) as examiner:
        findings = print_findings(examiner.examine(), json=json)
    leave_by(findings)


index = typer.Typer(no_args_is_help=True, help="Create and check the target index.")
commands.add_typer(index, name="index", rich_help_panel="Install")

Name = Annotated[
    str | None, typer.Argument(help="Index or alias; left out: every target of the settings.", metavar="[NAME]")
]


@index.command()
def create(
    name: Name = None,
    mappings: Path | None = flag(None, "--mappings", "File with the mappings, as JSON.", "FILE"),
    settings: Path | None = flag(None, "--settings", "File with more index settings, as JSON.", "FILE"),
    json: Json = False,
) -> None:
    """Make NAME-v1, the alias NAME, and a template for both that forbids automatic creation.

    Deletes are remembered for an hour (gc_deletes), so that a late write cannot bring a document back.

    Examples:
      outbox index create
      outbox index create articles --mappings articles.json
    """
    wanted = cli.json_object(mappings, "--mappings"), cli.json_object(settings, "--settings")
    with cli.open_index_desk(cli.settings(require_database=False)) as desk:
        made = [desk.create(target, *wanted) for target in ([name] if name else desk.targets)]
    cli.answer([each._asdict() for each in made], json=json)


@index.command()
def check(name: Name = None, json: Json = False) -> None:
    """Check the target: does it accept writes, is it an alias, how long are deletes remembered, how full is the disk.

    Examples:
      outbox index check
      outbox index check articles --json
    """
    with cli.open_index_desk(cli.settings(require_database=False)) as desk:
        findings = desk.check([name] if name else desk.targets)
    print_findings(findings, json=json)
    leave_by(findings)
