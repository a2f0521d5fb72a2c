"""The command `replay`, also installed as `outbox-replay`. It reads flags; `replaying` does what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outbox.cli import filters, guarded, session
from outbox.cli.output import Json, Yes
from outbox.cli.replaying import Wishes, dry_run_of, replay_of
from outbox.cli.usage import PlainCommand
from outbox.errors import UsageError
from outbox.policy.filter import EventFilter, given, read_ids

commands = typer.Typer()


def main() -> None:
    """`outbox-replay`."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    alone.command(name="outbox-replay", cls=PlainCommand)(replay)
    guarded(lambda: alone(prog_name="outbox-replay"))


@commands.command(rich_help_panel="Act")
def replay(
    by: Annotated[str | None, typer.Option("--by", help="Who you are; written down. Required to replay.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; written down. Required to replay.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="Most events; 100 if not said, or the number of ids.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every event that matches; asks first.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be replayed.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end: exit 0, 3 (partly, timeout) or 1.")] = False,
    rate: Annotated[float | None, typer.Option("--rate", help="Events a second; 1,000 if not said.")] = None,
    webhook: Annotated[
        str | None, typer.Option("--webhook", help="Also tell this address; its host must be allowed.", metavar="URL")
    ] = None,
    plan_out: Annotated[
        Path | None, typer.Option("--plan-out", help="A dry run that writes its ids to a file.", metavar="FILE")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Replay exactly the ids of such a file, once.", metavar="FILE")
    ] = None,
    ids_file: Annotated[
        Path | None, typer.Option("--ids-file", help="File with ids, 500 at most; `-` is stdin.", metavar="FILE")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option("--client-id", help="Sent again with the same one, nothing happens twice.")
    ] = None,
    entity_type: filters.EntityType = None,
    entity_id: filters.EntityId = None,
    error_reason: filters.ErrorReason = None,
    error_code: filters.ErrorCode = None,
    dead_reason: filters.DeadReason = None,
    failure_type: filters.FailureType = None,
    fingerprint: filters.Fingerprint = None,
    trace_id: filters.TraceId = None,
    id: filters.Ids = None,
    since: filters.Since = None,
    until: filters.Until = None,
    json: Json = False,
    yes: Yes = False,
) -> None:
    """Put failed events back to pending, so that they are projected again; with --id also discarded ones.

    Works where no projector runs. Asks only above 1,000 events or with --all. If this command is killed, a projector
    goes on; `outbox replays cancel` stops it.

    Examples:
      outbox replay --dry-run --error-reason es_rejected_document
      outbox replay --by alice --reason "fixed root cause" --limit 100
      outbox replay --by alice --reason "mapping mended" --fingerprint 5d4ed31ca13675e1 --all --wait
      outbox replay --plan-out plan.json --since 2h && outbox replay --plan plan.json --by alice --reason "agreed"
    """
    asked = filters.event_filter(
        entity_type=entity_type,
        entity_id=entity_id,
        error_reason=error_reason,
        error_code=error_code,
        dead_reason=dead_reason,
        failure_type=failure_type,
        fingerprint=fingerprint,
        trace_id=trace_id,
        ids=_ids(id, ids_file),
        since=since,
        until=until,
    )
    wishes = Wishes(by, reason, limit, everything, rate, webhook, client_id, wait, json, yes)
    _check(wishes, asked, plan)
    with session.operations() as desk:
        if dry_run or plan_out is not None:
            dry_run_of(desk, asked, wishes, plan_out)
        else:
            replay_of(desk, asked, wishes, plan)


def _check(wishes: Wishes, asked: EventFilter, plan: Path | None) -> None:
    if wishes.everything and (wishes.limit is not None or asked.ids):
        raise UsageError("--all goes neither with --limit nor with ids")
    if plan is not None and (given(asked) or wishes.limit is not None or wishes.everything):
        raise UsageError("--plan holds its ids itself: give no filter, --limit or --all with it")


def _ids(given_ids: list[str] | None, file: Path | None) -> list[str] | None:
    if file is None:
        return given_ids
    try:
        text = typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise UsageError(f"--ids-file {file} cannot be read: {type(wrong).__name__}") from wrong
    try:
        return [*(given_ids or ()), *map(str, read_ids(text))]
    except ValueError as wrong:
        raise UsageError(f"--ids-file: {wrong}") from wrong
