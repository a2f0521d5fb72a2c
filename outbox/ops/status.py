"""The status of the queue: backlog, rate, types, workers, pauses, one sentence; and waiting until it is caught up.

Reads only, and never done rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from outbox.errors import NotPermitted, SchemaMismatch, StreamDown
from outbox.facts import FanoutSample, SlotSample
from outbox.policy.reindex import Rebuild
from outbox.ports import OpenCounts, PartitionOffsets, StreamOffsets

if TYPE_CHECKING:
    from outbox.store.backlog import PostgresBacklog, PostgresOverview

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits. `capped`: there is more than is counted, these are least values."""

    lag: int
    oldest_age_seconds: float
    inflight: int
    stuck: int
    due: int
    waiting: int
    failed: int
    rate: float
    drained_in_seconds: float | None
    capped: bool


@dataclass(frozen=True, slots=True)
class TypeCounts:
    entity_type: str
    pending: int = 0
    processing: int = 0
    failed: int = 0
    oldest_age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """`alive`: it has beaten within three of its intervals and has not stopped."""

    worker: str
    state: str
    alive: bool
    host: str
    pid: int
    version: str
    entity_types: Sequence[str]
    started_at: datetime
    heartbeat_at: datetime
    silent_seconds: float
    inflight: int
    server: str = ""  # what it writes to: product and version, and its nodes if there are several


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """Kafka, where it is the source. `error`: it does not answer, so its partitions are not known. `slot`: of the
    connector; None where this database has no event log that is written to."""

    topic: str
    group: str
    lag: int = 0
    partitions: Sequence[PartitionOffsets] = ()
    error: str = ""
    slot: SlotSample | None = None
    resting: Mapping[int, str] = field(default_factory=dict)  # why nothing of a partition is read on

    @property
    def is_captured(self) -> bool:
        """Whether somebody brings new events to the topic, as far as is known."""
        return self.slot is None or self.slot.active

    @property
    def oldest_age_seconds(self) -> float | None:
        return max((each.oldest_age_seconds for each in self.partitions if each.oldest_age_seconds), default=None)

    @property
    def gone(self) -> list[int]:
        return [each.partition for each in self.partitions if each.is_gone]

    def as_json(self) -> dict[str, Any]:
        each = [place._asdict() | {"lag": place.lag, "gone": place.is_gone} for place in self.partitions]
        slot = None if self.slot is None else asdict(self.slot)
        about = {"topic": self.topic, "group": self.group, "lag": self.lag, "error": self.error}
        return about | {"partitions": each, "slot": slot, "resting": {str(k): why for k, why in self.resting.items()}}


NO_FANOUTS: Final = FanoutSample(0, 0, 0.0, 0, 0, capped=False)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Everything that `outbox status` and the console's first page show."""

    sentence: str
    schema: str
    queue: Queue
    failed_by_reason: Mapping[str, int]
    by_entity_type: Sequence[TypeCounts]
    workers: Sequence[WorkerSeen]
    pauses: Sequence[Row]
    sampled_at: datetime
    rebuild: str | None = None  # one that is not over, in words
    declared: Sequence[Row] = ()  # entity types, and what keeps each
    stream: StreamStatus | None = None
    fanouts: FanoutSample = NO_FANOUTS
    unattached: Sequence[str] = ()  # tables, and columns, that the view reads and no attachment covers

    def as_json(self) -> dict[str, Any]:
        """Without a stream there is no word of it."""
        found = asdict(self)
        found.pop("stream")
        return found if self.stream is None else found | {"stream": self.stream.as_json()}


class StatusDesk:
    def __init__(
        self,
        overview: PostgresOverview,
        backlog: PostgresBacklog,
        stream: StreamOffsets | None = None,
        unattached: Callable[[], Sequence[str]] = tuple,
        rebuild: Callable[[], Rebuild | None] = lambda: None,
    ) -> None:
        self._overview = overview
        self._backlog = backlog
        self._stream = stream
        self._unattached = unattached
        self._rebuild = rebuild

    def read(self) -> QueueStatus:
        """One reading. Raises SchemaMismatch where there is nothing that it could read."""
        schema = self._overview.schema()
        if not schema.ok:
            raise SchemaMismatch(str(schema))
        failed = self._backlog.failed_by_reason()
        queue = _queue(self._backlog.open_counts(), sum(failed.values()), self._overview.rate())
        workers = [_worker(row) for row in self._overview.workers()]
        pauses = [dict(row) for row in self._overview.pauses()]
        types = by_type(self._overview.open_by_type(), self._overview.failed_by_type())
        stream = None if self._stream is None else self._read_stream(self._stream)
        rebuild = self._rebuild()
        return QueueStatus(
            sentence=sentence(queue, workers, pauses, all_read=_is_read(stream)) + in_kafka(stream),
            schema=str(schema),
            queue=queue,
            failed_by_reason=dict(failed),
            by_entity_type=types,
            workers=workers,
            pauses=pauses,
            sampled_at=datetime.now(UTC),
            rebuild=None if rebuild is None or rebuild.is_over else rebuild.sentence,
            declared=self._overview.declared(),
            stream=stream,
            fanouts=self._backlog.fanouts(),
            unattached=self._read_unattached(),
        )

    def _read_unattached(self) -> Sequence[str]:
        """A reader need not see the schema of the view; `outbox doctor` says so then."""
        try:
            return self._unattached()
        except NotPermitted:
            return ()

    def _read_stream(self, stream: StreamOffsets) -> StreamStatus:
        resting = stream.resting(self._backlog.open_events(stream.topic, stream.group))
        return replace(read_stream(stream, self._backlog.slot()), resting=resting)


def read_stream(stream: StreamOffsets, slot: SlotSample | None = None) -> StreamStatus:
    """A broker that does not answer hides nothing of the rest."""
    try:
        found = stream.read()
        ages = stream.ages(found)
    except StreamDown as error:
        return StreamStatus(stream.topic, stream.group, error=error.detail or error.message, slot=slot)
    aged = [each._replace(oldest_age_seconds=ages.get(each.partition)) for each in found]
    return StreamStatus(stream.topic, stream.group, sum(each.lag for each in found), aged, slot=slot)


def _is_read(stream: StreamStatus | None) -> bool:
    return stream is None or (stream.is_captured and not (stream.error or stream.gone or stream.lag))


def in_kafka(stream: StreamStatus | None) -> str:
    """What is to be added to the sentence about the table."""
    if stream is None:
        return ""
    stopped = "" if stream.is_captured else "; no connector reads the event log (`outbox doctor`)"
    rests = "".join(f"; partition {partition} rests: {why}" for partition, why in stream.resting.items())
    return stopped + _in_topic(stream) + rests


def _in_topic(stream: StreamStatus) -> str:
    if stream.error:
        return f"; Kafka does not answer: {stream.error}"
    if stream.gone:
        places = ", ".join(map(str, stream.gone))
        return f"; a gap in Kafka's partition {places}: what is to be read next is gone (docs/kafka.md)"
    if stream.lag:
        oldest = "" if stream.oldest_age_seconds is None else f", the oldest {age(stream.oldest_age_seconds)} old"
        return f"; {stream.lag:,} record{'' if stream.lag == 1 else 's'} to be read from Kafka{oldest}"
    return "; nothing waits in Kafka"


def _queue(counts: OpenCounts, failed: int, rate: float) -> Queue:
    drained_in = counts.lag / rate if rate and counts.lag else None
    return Queue(**counts._asdict(), due=counts.due, failed=failed, rate=rate, drained_in_seconds=drained_in)


def _worker(row: Row) -> WorkerSeen:
    alive = row["state"] != "stopped" and row["silent_seconds"] <= 3 * row["heartbeat_seconds"]
    return WorkerSeen(
        worker=row["worker_id"],
        state=row["state"] if alive or row["state"] == "stopped" else "silent",
        alive=alive,
        host=row["host"] or "",
        pid=row["pid"] or 0,
        version=row["version"] or "",
        entity_types=row["entity_types"] or [],
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        silent_seconds=row["silent_seconds"],
        inflight=row["inflight"],
        server=row["server"] or "",
    )


def by_type(open_rows: Sequence[Row], failed_rows: Sequence[Row]) -> list[TypeCounts]:
    """One line per type that has open or failed rows, the fullest first."""
    found = {row["entity_type"]: dict(row) for row in open_rows}
    for row in failed_rows:
        found.setdefault(row["entity_type"], {})["failed"] = row["failed"]
    names = TypeCounts.__dataclass_fields__.keys() - {"entity_type"}
    return [TypeCounts(kind, **{name: row[name] for name in names & row.keys()}) for kind, row in found.items()]


def sentence(queue: Queue, workers: Sequence[WorkerSeen], pauses: Sequence[Row], *, all_read: bool = True) -> str:
    """How it is, most urgent first, in words that a tired person understands. `all_read`: nothing waits in Kafka."""
    more = "+" if queue.capped else ""
    paused = [row["scope"] for row in pauses if row["kind"] == "pause"]
    if "*" in paused:
        return f"Paused by an operator: {queue.lag:,}{more} open"
    if queue.lag and not any(worker.alive for worker in workers):
        return f"No projector runs: {queue.lag:,}{more} open, the oldest {age(queue.oldest_age_seconds)} old"
    partly = f"; {', '.join(scope.removeprefix('type:') for scope in paused)} paused" if paused else ""
    if queue.stuck:
        return f"{queue.stuck:,} stuck, waiting to be reclaimed; {queue.lag:,}{more} open{partly}"
    if not queue.lag:
        return f"{'Caught up: nothing waits' if all_read else 'No row waits'}{partly}"
    if queue.oldest_age_seconds < 30:
        return f"Keeping up: {queue.lag:,}{more} open, the oldest {age(queue.oldest_age_seconds)} old{partly}"
    drained = f", drained in about {age(queue.drained_in_seconds)}" if queue.drained_in_seconds else ""
    return (
        f"Falling behind: {queue.lag:,}{more} open, the oldest {age(queue.oldest_age_seconds)} old"
        f"{drained or ', nothing finished in the last 10 s'}{partly}"
    )


def in_fanouts(found: FanoutSample) -> str:
    """How far the open fan-outs are, and what of theirs waits; empty where there is nothing to say."""
    more = "+" if found.capped else ""
    parts = []
    if found.open:
        oldest = f"the oldest {age(found.oldest_age_seconds)} old"
        parts.append(f"{found.open:,}{more} open, {oldest}, {found.written:,} refreshes written so far")
    if found.refreshes_open:
        parts.append(f"{found.refreshes_open:,}{more} of their refreshes wait")
    if found.failed:
        parts.append(f"{found.failed:,}{more} failed")
    return "; ".join(parts)


def age(seconds: float) -> str:
    """1.2 s, 48 s, 6 min, 3.5 h, 2 d: one unit, as people say it."""
    units = ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"), (math.inf, 86_400, "d"))
    value, name = next((seconds / unit, name) for limit, unit, name in units if seconds < limit)
    return f"{value:.1f}".removesuffix(".0") + f" {name}" if value < 10 else f"{value:.0f} {name}"


def size(amount: int | None) -> str:
    """12 B, 1.5 MB, 2 GB; not every role may know it."""
    if amount is None:
        return "an unknown amount"
    units = ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"), (1, "B"))
    unit, name = next(each for each in units if amount >= each[0] or each[0] == 1)
    return f"{amount / unit:,.1f}".removesuffix(".0") + f" {name}"


MINUTES: Final = 60
RATE_MINUTES: Final = 5  # daemons add their counts every ten seconds: one minute alone would jump


@dataclass(frozen=True, slots=True)
class Pulse:
    """`minutes`: finished in each of the last sixty, the newest last. `rate`: per second, over five minutes."""

    minutes: Sequence[int]

    @property
    def last_hour(self) -> int:
        return sum(self.minutes)

    @property
    def rate(self) -> float:
        return sum(self.minutes[-RATE_MINUTES - 1 : -1]) / (RATE_MINUTES * 60)


def pulses(minutes: Callable[[timedelta], Sequence[tuple[str, datetime, int]]]) -> Mapping[str, Pulse]:
    found: dict[str, list[int]] = {}
    this = datetime.now(UTC).replace(second=0, microsecond=0)
    for kind, minute, n in minutes(timedelta(minutes=MINUTES)):
        place = MINUTES - 1 - int((this - minute).total_seconds() // 60)
        if 0 <= place < MINUTES:
            found.setdefault(kind, [0] * MINUTES)[place] += n
    return {kind: Pulse(each) for kind, each in found.items()}


CHECK_SECONDS: Final = 0.2


class OpenEvents(Protocol):
    def last_seq(self) -> int: ...
    def open_up_to(self, seq: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Waited:
    """`left`: of the events that were there when the waiting began, how many are still open. `not_captured`: why a
    connector has not brought them all to the topic; then nobody knows how many are left."""

    caught_up: bool
    left: int | None
    waited_seconds: float
    not_captured: str = ""


class StreamRecords:
    """A topic as something to wait for: the records that are in it now. What they leave as rows is the table's."""

    def __init__(self, stream: StreamOffsets) -> None:
        self._stream = stream
        self._ends: dict[int, int] = {}

    def last_seq(self) -> int:
        self._ends = {each.partition: each.end for each in self._stream.read()}
        return 0

    def open_up_to(self, seq: int) -> int:
        return sum(each._replace(end=self._ends.get(each.partition, 0)).lag for each in self._stream.read())


def wait_until_caught_up(
    events: OpenEvents,
    timeout_seconds: float | None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Waited:
    """Later events do not count, or a busy queue would never be caught up. Failed and discarded ones are settled."""
    began, mark = clock(), events.last_seq()
    while left := events.open_up_to(mark):
        waited = clock() - began
        if timeout_seconds is not None and waited >= timeout_seconds:
            return Waited(False, left, waited)
        sleep(CHECK_SECONDS if timeout_seconds is None else min(CHECK_SECONDS, max(timeout_seconds - waited, 0.01)))
    return Waited(True, 0, clock() - began)
