"""The commands `audit list|export|prune|verify`. They print what `ops` says and ask before something is removed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outbox import cli
from outbox.cli import Json, Yes, flag, option
from outbox.errors import OutboxError, UsageError
from outbox.policy.audit import LEAST_DAYS

if TYPE_CHECKING:
    pass

commands = typer.Typer()
audit = typer.Typer(no_args_is_help=True, help="List, export, prune and verify the audit log.")
commands.add_typer(audit, name="audit", rich_help_panel="Inspect")


class ChainBroken(OutboxError):
    """The audit was tampered with, or rows were lost. Keep a copy of the database and find out who could write it."""


@audit.command(name="list")
@cli.filters_audit
def list_(
    raw: cli.Raw | None = None,
    limit: int = flag(50, "--limit -n", "Most rows on a page.", min=1, max=500),
    after: int | None = flag(None, "--after", "Continue after a page: its last id."),
    json: Json = False,
) -> None:
    """List acts, the newest first.

    Examples:
      outbox audit list --actor alice --since 1d
      outbox audit list --batch-id 0199c0de-0000-7000-8000-000000000001 --json
    """
    asked = cli.audit_filter(raw or {})
    with cli.open_operations(cli.settings()) as desk:
        page = desk.audit.page(asked, after, limit)
    rows = [asdict(row) | {"detail": cli.raw_json(row.detail)} for row in page.rows]
    record = {"rows": rows, "next": page.next_cursor, "total": page.total}
    columns = ("id", "at", "action", "actor", "source", "entity_type", "entity_id", "batch_id", "reason", "detail")
    cli.listed(record, columns, "no audit entries match", json=json)


@audit.command()
@cli.filters_audit
def export(
    by: cli.ByLogin,
    form: str = flag("ndjson", "--format", "csv, json or ndjson.", "FORMAT"),
    raw: cli.Raw | None = None,
) -> None:
    """Write all rows that match, the oldest first; the export itself is audited too.

    JSON and NDJSON keep every value as it is; in CSV a quote stands before what a spreadsheet would run as a formula.

    Examples:
      outbox audit export --by alice --format csv --since 30d > audit.csv
    """
    asked = cli.audit_filter(raw or {})
    with cli.open_operations(cli.settings()) as desk:
        sys.stdout.writelines(desk.audit.export(asked, form, cli.actor(by)))
        sys.stdout.flush()


@audit.command()
@cli.filters_audit
def prune(
    older_than_days: Annotated[float, option("--older-than-days", "The last seven days always stay.", min=LEAST_DAYS)],
    by: cli.ByLogin,
    archive: Path | None = flag(None, "--archive", "Write the rows to this file (NDJSON) first.", "FILE"),
    reason: str | None = flag(None, "--reason", "Why, for the audit log.", "TEXT"),
    dry_run: bool = flag(False, "--dry-run", "Only print how many."),
    raw: cli.Raw | None = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove old rows in steps. Their hashes stay, so `outbox audit verify` goes on working.

    Examples:
      outbox audit prune --older-than-days 90 --by alice --dry-run
      outbox audit prune --older-than-days 90 --by alice --archive audit-2026.ndjson --yes
    """
    asked = cli.audit_filter(raw or {})
    who = cli.actor(by)
    with cli.open_operations(cli.settings()) as desk:
        due = desk.audit.prune(asked, older_than_days, who, dry_run=True)
        if not dry_run and due.removed:
            cli.confirm(f"Remove {due.removed:,} audit rows from before {cli.shown(due.before)}?", yes=yes)
            into = None if archive is None else lambda pieces: _write(archive, pieces)
            due = desk.audit.prune(asked, older_than_days, who, reason, archive=into)
    cli.answer(due, f"{due.removed:,} rows {'would be' if due.dry_run else 'were'} removed", json=json)


@audit.command()
def verify(json: Json = False) -> None:
    """Walk the whole chain of hashes: was a row changed, removed or inserted? Exit 1 if so.

    Examples:
      outbox audit verify
    """
    with cli.open_operations(cli.settings()) as desk:
        found = desk.audit.verify()
    record = {"ok": found.ok, "head": found.head, "findings": [each._asdict() for each in found.findings]}
    cli.answer(record, json=json)
    if not found.ok:
        raise ChainBroken(f"{len(found.findings)} findings, the first at row {found.findings[0].id}")


def _write(file: Path, pieces: Iterable[str]) -> None:
    """On the disk when it returns: a prune waits for its archive."""
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            stream.writelines(pieces)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as wrong:
        raise UsageError(f"--archive {file} cannot be written: {wrong.strerror}") from wrong
