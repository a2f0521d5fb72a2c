"""Does what `outbox replay` was asked for: the dry run, the question, the moving, the waiting. It decides no row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbox.cli import output, replay_words
from outbox.errors import OutboxError, UsageError
from outbox.policy.audit import Source
from outbox.policy.filter import EventFilter, described
from outbox.policy.replay import ASK_ABOVE, MOST_ROWS, ReplayBatch, exit_code

if TYPE_CHECKING:
    from outbox.app.operating import Operations
    from outbox.ops.replay import Created, ReplayRequest


class ReplayFailed(OutboxError):
    """The replay did not do what was asked. See `outbox replays show`; what moved stays moved."""

    def __init__(self, detail: str, code: int) -> None:
        super().__init__(detail)
        self.exit_code = code  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Wishes:
    """The flags that are not the filter."""

    by: str | None
    reason: str | None
    limit: int | None
    everything: bool
    rate: float | None
    webhook: str | None
    client_id: str | None
    wait: bool
    json: bool
    yes: bool


def dry_run_of(desk: Operations, asked: EventFilter, wishes: Wishes, plan_out: Path | None) -> None:
    from outbox.ops import plan as plans  # noqa: PLC0415  (only a command that runs pays for it)

    limit = MOST_ROWS if wishes.everything else wishes.limit
    made = desk.planner.plan(asked, limit, pin=plan_out is not None)
    if plan_out is not None:
        try:
            plan_out.write_text(plans.written(made), encoding="utf-8")
        except OSError as wrong:
            raise UsageError(f"--plan-out {plan_out} cannot be written: {wrong.strerror}") from wrong
        output.note(f"plan {made.id} with {len(made.ids)} ids written to {plan_out}")
    if wishes.json:
        output.as_json(replay_words.plan_record(made))
    else:
        replay_words.print_plan(made)


def replay_of(desk: Operations, asked: EventFilter, wishes: Wishes, plan: Path | None) -> None:
    request = _request(asked, wishes, plan)
    if wishes.everything or (request.limit or len(request.pinned)) > ASK_ABOVE:
        _ask(desk, request, wishes)
    created = desk.replays.create(request)
    if created.lease is None:
        output.note(f"replay {created.batch.id} was asked for before: nothing is done twice")
    batch = _move(desk, created, wishes)
    if wishes.json:
        output.as_json(replay_words.batch_record(batch))
    else:
        replay_words.print_batch(batch)
    _leave_by(batch, waited=wishes.wait)


def _request(asked: EventFilter, wishes: Wishes, plan: Path | None) -> ReplayRequest:
    from outbox.ops import plan as plans  # noqa: PLC0415
    from outbox.ops import request  # noqa: PLC0415
    from outbox.ops.replay import ReplayRequest  # noqa: PLC0415

    missing = [flag for flag, value in (("--by", wishes.by), ("--reason", wishes.reason)) if value is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be given to replay; --dry-run needs neither")
    about: dict[str, Any] = {
        "actor": request.actor(wishes.by or "", Source.CLI),
        "reason": wishes.reason or "",
        "rate": wishes.rate,
        "webhook_url": wishes.webhook,
        "client_id": wishes.client_id,
        "limit": MOST_ROWS if wishes.everything else wishes.limit,
        "filter": asked,
    }
    if plan is not None:
        try:
            text = plan.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as wrong:
            raise UsageError(f"--plan {plan} cannot be read: {type(wrong).__name__}") from wrong
        plan_id, planned, pinned = plans.read(text)
        about |= {"client_id": wishes.client_id or plan_id, "filter": planned, "pinned": pinned}
    return ReplayRequest(**about)


def _ask(desk: Operations, request: ReplayRequest, wishes: Wishes) -> None:
    """Only where it is many: the guide's own command never asks."""
    if request.pinned:
        count = len(request.pinned)
    else:
        found = desk.planner.failures.count(request.filter, request.limit or MOST_ROWS)
        count = min(found, request.limit or MOST_ROWS)
    if wishes.everything or count > ASK_ABOVE:
        output.confirm(f"Replay {count:,} events ({described(request.filter)})?", yes=wishes.yes)


def _move(desk: Operations, created: Created, wishes: Wishes) -> ReplayBatch:
    batch = created.batch
    try:
        with _progress(batch.total) as advance:
            moved = desk.replays.dispatch(created, lambda step: advance(step.replayed + step.skipped))
        if not wishes.wait or moved.is_over:
            return moved
        with _progress(moved.replayed, "projected") as advance:
            seen = 0

            def tell(now: ReplayBatch) -> None:
                nonlocal seen
                advance(now.replayed - now.still_open - seen)
                seen = now.replayed - now.still_open

            return desk.replays.wait(batch.id, tell)
    except KeyboardInterrupt:
        output.note(f"replay {batch.id} goes on by a projector; `outbox replays cancel {batch.id}` stops it")
        raise


@contextmanager
def _progress(total: int, word: str = "replayed") -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    console = output.stderr()
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(word, total=total)
        yield lambda n: bar.advance(task, n)


def _leave_by(batch: ReplayBatch, *, waited: bool) -> None:
    code = exit_code(batch) if waited or batch.is_over else (3 if batch.skipped else 0)
    if code:
        raise ReplayFailed(replay_words.told(batch), code)
