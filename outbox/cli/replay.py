"""The commands `replay` (also installed as `outbox-replay`) and `replays list|show|cancel`. They read flags, ask, print
and wait; they decide no row."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outbox import cli
from outbox.cli import Json, Yes, as_program, flag
from outbox.cli.menu import PlainCommand
from outbox.cli.progress import meter
from outbox.errors import OutboxError, UsageError
from outbox.policy import inputs
from outbox.policy.inputs import EventFilter, described, given, read_ids
from outbox.policy.replay import ASK_ABOVE, MOST_ROWS, Dispatched, ReplayBatch, exit_code

if TYPE_CHECKING:
    from outbox.app.operations import Operations
    from outbox.ops.replay.desk import Created, ReplayRequest
    from outbox.ops.replay.plan import Plan

commands = typer.Typer()


def main() -> None:
    """`outbox-replay`."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    alone.command(name="outbox-replay", cls=PlainCommand)(replay)
    as_program(lambda: alone(prog_name="outbox-replay"))


@commands.command(rich_help_panel="Act")
@cli.filters_events()
def replay(
    by: str | None = flag(None, "--by", "Your name, for the audit log. Required to replay."),
    reason: str | None = flag(None, "--reason", "Why, for the audit log. Required to replay."),
    limit: int | None = flag(None, "--limit -n", "Most events. Default: 100, or the number of ids."),
    everything: bool = flag(False, "--all", "Every event that matches; asks for confirmation."),
    dry_run: bool = flag(False, "--dry-run", "Only print what would be replayed."),
    wait: bool = flag(False, "--wait", "Wait until it ends: exit 0, 3 (partly, timeout) or 1."),
    rate: float | None = flag(None, "--rate", "Events per second. Default: 1,000."),
    webhook: str | None = flag(None, "--webhook", "Also send a webhook here; its host must be allowed.", "URL"),
    plan_out: Path | None = flag(None, "--plan-out", "A dry run that writes the ids to a file.", "FILE"),
    plan: Path | None = flag(None, "--plan", "Replay exactly the ids of that file, once.", "FILE"),
    ids_file: Path | None = flag(None, "--ids-file", "File with ids, 500 at most; `-` is stdin.", "FILE"),
    client_id: str | None = flag(None, "--client-id", "Idempotency key: repeating it does nothing."),
    raw: cli.Raw | None = None,
    json: Json = False,
    yes: Yes = False,
) -> None:
    """Put failed events back to pending, so that they are projected again; with --id also discarded ones.

    Works without a running projector. Asks only above 1,000 events or with --all. If this command is killed, a
    projector continues; `outbox replays cancel` stops it.

    Examples:
      outbox replay --dry-run --error-reason es_rejected_document
      outbox replay --by alice --reason "fixed root cause" --limit 100
      outbox replay --by alice --reason "mapping fixed" --fingerprint 5d4ed31ca13675e1 --all --wait
      outbox replay --plan-out plan.json --since 2h && outbox replay --plan plan.json --by alice --reason "agreed"
    """
    asked = cli.event_filter({**(raw or {}), "ids": _ids((raw or {}).get("ids"), ids_file)})
    if everything and (limit is not None or asked.ids):
        raise UsageError("--all goes neither with --limit nor with ids")
    if plan is not None and (given(asked) or limit is not None or everything):
        raise UsageError("--plan holds its ids itself: give no filter, --limit or --all with it")
    most = MOST_ROWS if everything else limit
    with cli.open_operations(cli.settings()) as desk:
        if dry_run or plan_out is not None:
            made = dry_run_of(desk, asked, most, plan_out)
            record = {name: value for name, value in asdict(made).items() if name != "ids"}  # those are in the file
            cli.answer(record, lambda: cli.tables(record, _heading(made)), json=json)
            return
        about = {"filter": asked, "limit": most, "rate": rate, "webhook_url": webhook, "client_id": client_id}
        request = _request(by, reason, about, plan)
        if everything or (most or len(request.pinned)) > ASK_ABOVE:
            _ask(desk, request, everything=everything, yes=yes)
        created = desk.replays.create(request)
        if created.lease is None:
            cli.note(f"replay {created.batch.id} was requested before: nothing is done twice")
        batch = _move(desk, created, wait=wait)
    cli.answer(batch_record(batch), lambda: print_batch(batch), json=json)
    if code := exit_code(batch) if wait or batch.is_over else (3 if batch.skipped else 0):
        raise ReplayFailed(summary(batch), code)


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


class ReplayFailed(OutboxError):
    """The replay did not do all that was requested. See `outbox replays show`; events that moved stay moved."""

    def __init__(self, detail: str, code: int) -> None:
        super().__init__(detail)
        self.exit_code = code  # type: ignore[misc]


def dry_run_of(desk: Operations, asked: EventFilter, limit: int | None, plan_out: Path | None) -> Plan:
    from outbox.ops.replay import plan as plans  # noqa: PLC0415  (only a command that runs pays for it)

    made = desk.planner.plan(asked, limit, pin=plan_out is not None)
    if plan_out is not None:
        try:
            plan_out.write_text(plans.written(made), encoding="utf-8")
        except OSError as wrong:
            raise UsageError(f"--plan-out {plan_out} cannot be written: {wrong.strerror}") from wrong
        cli.note(f"plan {made.id} with {len(made.ids)} ids written to {plan_out}")
    return made


def _request(by: str | None, reason: str | None, about: dict[str, Any], plan: Path | None) -> ReplayRequest:
    from outbox.ops.replay import plan as plans  # noqa: PLC0415
    from outbox.ops.replay.desk import ReplayRequest  # noqa: PLC0415

    if by is None or reason is None:
        missing = " and ".join(name for name, value in (("--by", by), ("--reason", reason)) if value is None)
        raise UsageError(f"{missing} must be given to replay; --dry-run needs neither")
    if plan is not None:
        try:
            text = plan.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as wrong:
            raise UsageError(f"--plan {plan} cannot be read: {type(wrong).__name__}") from wrong
        plan_id, planned, pinned = plans.read(text)
        about |= {"client_id": about["client_id"] or plan_id, "filter": planned, "pinned": pinned}
    return ReplayRequest(actor=cli.actor(by), reason=reason, **about)


def _ask(desk: Operations, request: ReplayRequest, *, everything: bool, yes: bool) -> None:
    """Only where it is many: the guide's own command never asks."""
    most = request.limit or MOST_ROWS
    count = len(request.pinned) or min(desk.planner.failures.count(request.filter, most), most)
    if everything or count > ASK_ABOVE:
        cli.confirm(f"Replay {count:,} events ({described(request.filter)})?", yes=yes)


def _move(desk: Operations, created: Created, *, wait: bool) -> ReplayBatch:
    batch, done = created.batch, 0
    try:
        with meter() as tell:

            def advance(step: Dispatched) -> None:
                nonlocal done
                done += step.replayed + step.skipped
                tell("replayed", done, batch.total)

            moved = desk.replays.dispatch(created, advance)
            if not wait or moved.is_over:
                return moved
            count = moved.replayed
            return desk.replays.wait(batch.id, lambda now: tell("projected", now.replayed - now.still_open, count))
    except (KeyboardInterrupt, SystemExit):
        cli.note(f"replay {batch.id} is continued by a projector; `outbox replays cancel {batch.id}` stops it")
        raise


replays = typer.Typer(no_args_is_help=True, help="List, show and cancel replays.")
commands.add_typer(replays, name="replays", rich_help_panel="Act")

Id = Annotated[str, typer.Argument(help="The replay's id.", metavar="ID")]
_LISTED = ("id", "status", "requested_by", "created_at", "total", "replayed", "skipped", "done", "failed_again")


@replays.command(name="list")
def list_(
    limit: int = flag(20, "--limit -n", "Most replays on a page.", min=1, max=500),
    after: str | None = flag(None, "--after", "Continue after a page: its cursor."),
    live: bool = flag(False, "--live", "Only those that are not over."),
    json: Json = False,
) -> None:
    """List replays, the newest first.

    Examples:
      outbox replays list --live
    """
    with cli.open_operations(cli.settings()) as desk:
        page = desk.replays.page(after, limit, live=live)
    record = {"replays": [batch_record(batch) for batch in page.replays], "next": page.next_cursor}
    empty = "no replay is under way" if live else "nothing was replayed here yet"
    cli.listed(record, _LISTED, empty, json=json)


@replays.command()
def show(id: Id, json: Json = False) -> None:
    """Show one replay with its counts, and the events that did not simply become done.

    Examples:
      outbox replays show 0199c0de-0000-7000-8000-000000000001
    """
    with cli.open_operations(cli.settings()) as desk:
        detail = desk.replays.show(inputs.uuid("id", id))
    record = batch_record(detail.batch) | {"items": [dict(row) for row in detail.items]}
    cli.answer(record, lambda: cli.tables(record, summary(detail.batch)), json=json)


@replays.command()
def cancel(id: Id, by: cli.By, reason: cli.Reason, json: Json = False) -> None:
    """Stop a replay. Events that it has moved stay moved; the rest stay failed.

    Examples:
      outbox replays cancel 0199c0de-0000-7000-8000-000000000001 --by alice --reason "wrong filter"
    """
    with cli.open_operations(cli.settings()) as desk:
        batch = desk.replays.cancel(inputs.uuid("id", id), cli.actor(by), reason)
    cli.answer(batch_record(batch), lambda: print_batch(batch), json=json)


def batch_record(batch: ReplayBatch) -> dict[str, Any]:
    """Everything; of the webhook's address only its host, because its path is often a secret."""
    record = asdict(batch) | {"discarded": batch.discarded, "left": batch.left}
    return record | {"webhook_url": record.pop("webhook_to")}


def summary(batch: ReplayBatch) -> str:
    """One line: what moved, and how it ended so far."""
    parts = [f"replay {batch.id} is {batch.status}", f"{batch.replayed:,} of {batch.total:,} replayed"]
    counts = {"skipped": batch.skipped, "done": batch.done, "failed again": batch.failed_again}
    counts |= {"open": batch.still_open, "discarded": batch.discarded}
    parts += [f"{n:,} {word}" for word, n in counts.items() if n]
    return ", ".join([*parts, *([batch.reason] if batch.reason else [])])


def _heading(plan: Plan) -> str:
    unknown = "; how many are superseded is not known: the search server does not answer"
    return f"{plan.total:,} events would be replayed{unknown if plan.superseded is None else ''}"


def print_batch(batch: ReplayBatch) -> None:
    cli.line(summary(batch))
    if not batch.is_over:
        cli.note(f"follow it with: outbox replays show {batch.id}")
