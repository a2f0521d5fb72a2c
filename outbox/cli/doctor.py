"""The command `doctor`: prints what it finds, with remedies. It mends nothing."""

from __future__ import annotations

import typer

from outbox.cli import session
from outbox.cli.findings import leave_by, print_findings
from outbox.cli.output import Json

commands = typer.Typer()


@commands.command(rich_help_panel="Look")
def doctor(json: Json = False) -> None:
    """Examine everything that the projector stands on; each finding with its remedy. Exit 1 if there is a problem.

    Versions, rights, schema, slow indexes, limits, clock, the view and its plan, the oldest open document against the
    mapping (nothing is sent), the target index, disk, versions, workers, failures. Changes nothing.

    Examples:
      outbox doctor
      outbox doctor --json | jq '.findings[] | select(.verdict != "ok")'
    """
    with session.doctor(session.settings()) as examiner:
        findings = print_findings(examiner.examine(), json=json)
    leave_by(findings)
