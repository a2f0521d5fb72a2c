"""The commands `status`, `wait` and `stats`: the state now, waiting until it is caught up, what failed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from outbox import cli
from outbox.cli import Json, flag
from outbox.errors import DependencyDown, PartlyDone, UsageError
from outbox.kafka.capture import await_capture
from outbox.ops.status import QueueStatus, StreamStatus, TypeCounts, Waited, age, in_fanouts, wait_until_caught_up

if TYPE_CHECKING:
    from rich.console import RenderableType

    from outbox.app.desk import QueueDesk
    from outbox.ops.failures import FailureGroup, Stats
    from outbox.ports import PartitionOffsets

commands = typer.Typer()
INTERVAL_SECONDS = 2.0
MOST_NAMED = 10


@commands.command(rich_help_panel="Inspect")
def status(
    watch: bool = flag(False, "--watch -w", "Repeat every two seconds until Ctrl-C."),
    json: Json = False,
) -> None:
    """Show the status: backlog, oldest event, rate, failures by reason, entity types, workers, pauses.

    Counts are capped (a + follows the number), so that no query reads a whole table. With --watch and --json: one line
    per reading. "writing to" is what the workers see: product, version, and of several nodes which are in use.

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
            _line(reading, json=json)
            time.sleep(INTERVAL_SECONDS)
    from rich.live import Live  # noqa: PLC0415

    with Live(_picture(reading()), console=cli.printer(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(INTERVAL_SECONDS)
            try:
                live.update(_picture(reading()), refresh=True)
            except DependencyDown as away:
                live.update(f"{away.message}\n", refresh=True)


def _line(reading: Callable[[], QueueStatus], *, json: bool) -> None:
    try:
        print_line(reading(), json=json)
    except DependencyDown as away:
        cli.note(away.message)


def print_line(seen: QueueStatus, *, json: bool) -> None:
    """One reading; a reader behind a pipe gets it at once."""
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


def _declared(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each type once, and those of which a change is not over."""
    by = {
        keeper: ", ".join(cli.shown(row["entity_type"]) for row in rows if row["kept_by"] == keeper)
        for keeper in ("view", "payload")
    }
    told = [f"{text}: {by[keeper]}" for keeper, text in (("view", "kept by the view"), ("payload", "by payloads"))]
    moving = [cli.shown(row["entity_type"]) for row in rows if row["moving"]]
    told += [f"MOVING, `outbox types set` goes on: {', '.join(moving)}"] if moving else []
    return "; ".join(line for line in told if not line.endswith(": "))


def _documents(seen: QueueStatus) -> Iterator[str]:
    """What keeps documents, which changes are on their way to them, and which never will be."""
    if seen.declared:
        yield _declared(seen.declared)
    if told := in_fanouts(seen.fanouts):
        yield f"fan-outs: {told}"
    if seen.unattached:
        yield f"NOT ATTACHED, documents go stale (`outbox doctor`): {_listed(seen.unattached)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(map(cli.shown, names[:MOST_NAMED]))}{more}"


def _picture(seen: QueueStatus) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    queue = seen.queue
    more = "+" if queue.capped else ""
    drained = f", drained in about {age(queue.drained_in_seconds)}" if queue.drained_in_seconds else ""
    facts = (
        f"{queue.lag:,}{more} open ({queue.due:,}{more} due, {queue.waiting:,} waiting for a retry), oldest "
        f"{age(queue.oldest_age_seconds)}, {queue.inflight:,} in flight, {queue.stuck:,} stuck, "
        f"{queue.rate:.1f} done/s{drained}"
    )
    parts: list[RenderableType] = [Text(seen.sentence, style="bold"), Text(facts), Text(seen.schema)]
    parts += [Text(f"writing to {cli.shown(server)}") for server in seen.servers]
    if seen.stream is not None:
        parts.append(Text(_stream(seen.stream)))
    if seen.failed_by_reason:
        rows = [(reason or "(none)", n) for reason, n in seen.failed_by_reason.items()]
        parts += ["", cli.made_table(("failed by reason", "rows"), rows)]
    if seen.by_entity_type:
        columns = ("entity type", "pending", "processing", "failed", "oldest")
        parts += ["", cli.made_table(columns, map(_type_row, seen.by_entity_type))]
    if about := list(_documents(seen)):
        parts += ["", *map(Text, about)]
    workers = [
        (w.worker, w.state, f"{w.host}/{w.pid}", w.version, age(w.silent_seconds) + " ago", w.inflight)
        for w in seen.workers
    ]
    parts += ["", cli.made_table(("worker", "state", "host/pid", "version", "heartbeat", "in flight"), workers)]
    if seen.rebuild:
        parts.append(Text(seen.rebuild))
    for pause in seen.pauses:
        what = "brake lifted for" if pause["kind"] == "let_fail" else "paused:"
        parts.append(Text(f"{what} {pause['scope']} by {pause['by']} ({cli.shown(pause['reason'])})"))
    return Group(*parts)


def _type_row(each: TypeCounts) -> tuple[object, ...]:
    oldest = age(each.oldest_age_seconds) if each.pending + each.processing else "-"
    return each.entity_type, each.pending, each.processing, each.failed, oldest


def _stream(stream: StreamStatus) -> str:
    where = f"reading topic {stream.topic} as group {stream.group}"
    if stream.error:
        return f"{where}: {cli.shown(stream.error)}"
    behind = ", ".join(f"{each.partition}: {each.lag:,}{_old(each)}" for each in stream.partitions if each.lag)
    told = f"{where}, {len(stream.partitions)} partitions; records to be read by partition: {behind or 'none'}"
    if stream.slot is None:
        return told
    in_use = "in use" if stream.slot.active else "not in use"
    return f"{told}; the connector's slot is {in_use}, {stream.slot.kept_bytes / 1e6:,.1f} MB are kept for it"


def _old(place: PartitionOffsets) -> str:
    return "" if place.oldest_age_seconds is None else f" ({age(place.oldest_age_seconds)} old)"


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
            found = desk.failures.groups(asked)
            columns = ("fingerprint", "events", "failed again", "last day", "types", "reason", "last failed", "error")
            record = {"groups": [asdict(each) for each in found]}
            cli.answer(record, lambda: cli.table(columns, map(_group, found)), json=json)
            return
        reading = desk.stats.read(hours)
    cli.answer(asdict(reading) | {"failed": reading.failed._asdict()}, lambda: _print_stats(reading), json=json)


def _group(each: FailureGroup) -> tuple[object, ...]:
    change = f"{each.last_day} ({each.last_day - each.day_before:+})"
    types = ",".join(each.entity_types[:5])
    error = (each.sample_error or "")[:100]
    return each.fingerprint, each.count, each.failed_again, change, types, each.error_reason, each.last_failed_at, error


def _print_stats(reading: Stats) -> None:
    failed = reading.failed
    cli.line(f"{failed.total:,} failed now, {reading.failed_again:,} of them after a replay")
    if failed.total:
        cli.line(f"from {cli.shown(reading.oldest)} to {cli.shown(reading.newest)}")
        cli.line(f"{reading.last_day:,} in the last day, {reading.day_before:,} in the day before")
    _counts("entity type", failed.by_entity_type, "failed")
    _counts("reason", failed.by_reason, "failed")
    _counts("failure type", failed.by_failure_type, "failed")
    _counts("entity type", reading.finished, "done")
    _counts("entity type", reading.discarded, "discarded")
    if reading.work:
        cli.line()
        names = ("done", "failed", "retried", "released")
        rows = [(hour.hour, *(hour.outcomes.get(name, 0) for name in names)) for hour in reading.work]
        cli.table(("hour", *names), rows)


def _counts(title: str, counts: Mapping[str, int], word: str) -> None:
    if counts:
        cli.line()
        cli.table((title, word), [(name, f"{n:,}") for name, n in list(counts.items())[:20]])
