"""The commands `status`, `wait` and `stats`: the state now, waiting until it is caught up, what failed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from outbox import cli
from outbox.cli import Json, flag
from outbox.errors import DependencyDown, PartlyDone, UsageError
from outbox.kafka.capture_wait import await_capture
from outbox.ops.status import QueueStatus, Waited, wait_until_caught_up

if TYPE_CHECKING:
    from rich.console import RenderableType

    from outbox.app.desk import QueueDesk

commands = typer.Typer()
INTERVAL_SECONDS = 2.0
WORKER = ("worker", "state", "host", "pid", "version", "silent_seconds", "inflight", "server")
GROUP = ("fingerprint", "count", "failed_again", "last_day", "error_reason", "last_failed_at", "sample_error")


@commands.command(rich_help_panel="Inspect")
def status(
    watch: bool = flag(False, "--watch -w", "Repeat every two seconds until Ctrl-C."),
    json: Json = False,
) -> None:
    """Show the status: backlog, oldest event, rate, failures by reason, entity types, workers, pauses.

    Counts are capped (a + follows the number), so that no query reads a whole table. With --watch and --json: one line
    per reading. A worker's "server" is what it writes to: product, version, and of several nodes which are in use.

    Examples:
      outbox status
      outbox status --watch
      outbox status --json | jq .queue.lag
    """
    with cli.open_desk(cli.settings()) as desk:
        if watch:
            _watch(desk.status.read, json=json)
            return
        seen = desk.status.read()
    cli.answer(seen.as_json(), lambda: cli.show(_picture(seen)), json=json)


def _watch(reading: Callable[[], QueueStatus], *, json: bool) -> None:
    """On a terminal one picture that is drawn again; elsewhere one line per reading."""
    if json or not sys.stdout.isatty():
        while True:
            print_line(reading, json=json)
            time.sleep(INTERVAL_SECONDS)
    from rich.live import Live  # noqa: PLC0415

    with Live(_picture(reading()), console=cli.printer(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(INTERVAL_SECONDS)
            try:
                live.update(_picture(reading()), refresh=True)
            except DependencyDown as away:
                live.update(f"{away.message}\n", refresh=True)


def print_line(reading: Callable[[], QueueStatus], *, json: bool) -> None:
    """One reading; a reader behind a pipe gets it at once."""
    try:
        seen = reading()
    except DependencyDown as away:
        cli.note(away.message)
        return
    if json:
        cli.as_json(seen.as_json(), compact=True)
    else:
        cli.line(one_line(seen))
        sys.stdout.flush()


def one_line(seen: QueueStatus) -> str:
    """What a log or a narrow terminal shows."""
    queue = seen.queue
    alive = sum(worker.alive for worker in seen.workers)
    return (
        f"{seen.sampled_at:%H:%M:%S}  {seen.sentence}  |  {queue.rate:.1f}/s, {queue.inflight} in flight, "
        f"{queue.failed} failed, {alive} worker{'s' if alive != 1 else ''}"
    )


def _picture(seen: QueueStatus) -> RenderableType:
    record = {name: value for name, value in seen.as_json().items() if name != "sentence"}
    record["workers"] = [{name: each[name] for name in WORKER} for each in record["workers"]]
    record["documents go stale, see `outbox doctor`; not attached"] = record.pop("unattached")
    return cli.picture(record, seen.sentence)


@commands.command(rich_help_panel="Inspect")
def wait(
    caught_up: bool = flag(False, "--caught-up", "Until all events that are there now are settled."),
    timeout: float | None = flag(None, "--timeout", "Stop waiting after this many seconds (exit 3).", "S"),
    json: Json = False,
) -> None:
    """Wait until everything that was committed before is settled: done, failed or discarded.

    Later events do not count. Documents are searchable after Elasticsearch's next refresh (1 s by default).

    Examples:
      outbox wait --caught-up --timeout 60 && curl ...
    """
    if not caught_up:
        raise UsageError("give what to wait for: --caught-up")
    if timeout is not None and timeout < 0:
        raise UsageError("--timeout must be 0 or more")
    with cli.open_desk(cli.settings()) as desk:
        waited = _wait(desk, timeout)
    if json:
        cli.as_json(waited)
    if not waited.caught_up:
        why = f"{waited.left} events were still open after {waited.waited_seconds:.1f} s"
        raise PartlyDone(f"{waited.not_captured}; nothing behind it was waited for" if waited.not_captured else why)
    if not json:
        cli.line(f"caught up after {waited.waited_seconds:.1f} s")


def _wait(desk: QueueDesk, timeout: float | None) -> Waited:
    """The connector first, then Kafka: what each leaves is with the next one then."""
    seconds, left = 0.0, 0
    if desk.capture is not None:
        captured = await_capture(desk.capture, timeout)
        seconds = captured.waited_seconds
        if captured.unknown:
            cli.note(captured.unknown)
        if captured.late:
            return Waited(False, None, seconds, captured.late)
    for each in (desk.stream, desk.events):
        if each is not None and not left:
            waited = wait_until_caught_up(each, None if timeout is None else max(timeout - seconds, 0.0))
            seconds, left = seconds + waited.waited_seconds, waited.left or 0
    return Waited(not left, left, seconds)


@commands.command(rich_help_panel="Inspect")
@cli.filters_events("entity_type", "error_reason")
def stats(
    hours: int = flag(24, "--hours", "How far back the hours go.", min=1, max=2160),
    groups: bool = flag(False, "--groups", "Failures by fingerprint instead."),
    raw: cli.Raw | None = None,
    json: Json = False,
) -> None:
    """Show failures by entity type, reason and kind, by hour, and what became of events. Never reads done rows.

    Examples:
      outbox stats
      outbox stats --groups --entity-type article
    """
    asked = cli.event_filter(raw or {})
    with cli.open_operations(cli.settings()) as desk:
        if groups:
            found = [asdict(each) for each in desk.failures.groups(asked)]
            shown = [{name: cli.shown(each[name])[: cli.LONGEST_CELL] for name in GROUP} for each in found]
            cli.answer({"groups": found}, lambda: cli.tables(shown), json=json)
            return
        reading = desk.stats.read(hours)
    cli.answer(asdict(reading) | {"failed": reading.failed._asdict()}, json=json)
