"""What can happen in a daemon, as values in the past tense. Metrics, logs and health subscribe; no logic here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NamedTuple, dataclass_transform
from uuid import UUID

from outbox.policy.event import Event
from outbox.policy.outcome import DeadReason, Failure


class DeclaredLine(NamedTuple):
    """How a fact is logged; `telemetry.log_lines` reads it.

    `fields` and `counts` are attributes of the fact, in the order of the line: `name`, or `name=attribute` where they
    differ. `name_ms` is in milliseconds; a `?` leaves out an empty value. `event` and `texts` may quote attributes.
    """

    event: str
    level: str
    fields: str
    counts: str
    texts: Mapping[str, str]


@dataclass_transform(frozen_default=True)
class Fact:
    """Subclasses are frozen dataclasses. Without `log` a fact shows only as a metric or on /readyz."""

    line: ClassVar[DeclaredLine | None] = None

    def __init_subclass__(
        cls, log: str = "", level: str = "info", fields: str = "", counts: str = "", **texts: str
    ) -> None:
        dataclass(frozen=True)(cls)
        if log:
            cls.line = DeclaredLine(log, level, fields, counts, texts)


class WorkerStarted(Fact, log="worker.started", fields="version lanes target"):
    worker: str
    version: str
    lanes: int
    target: str


class WorkerDraining(Fact, log="worker.draining", fields="reason=signal grace_seconds"):
    signal: str
    grace_seconds: float


class WorkerStopped(Fact, log="worker.stopped", fields="clean released"):
    clean: bool
    released: int
    uptime_seconds: float


class BatchClaimed(
    Fact, log="batch.claimed", fields="batch=token lane duration_ms=duration_seconds", counts="claimed=count"
):
    token: UUID
    lane: int
    count: int
    duration_seconds: float
    suspects: bool = False
    traceparents: Sequence[str] = ()  # the producers' trace contexts, where they gave any


class FannedOut(Fact, log="fanout.page", level="debug", fields="event_id entity_type source last", counts="refreshes"):
    """A page of refreshes is written for a change of `source`; `last`: there are no more."""

    event_id: UUID
    entity_type: str
    source: str
    refreshes: int
    last: bool


class BatchSettled(
    Fact, log="batch.settled", fields="batch=token lane duration_ms=duration_seconds settle_ms=settle_seconds"
):
    """The counts add up to the rows that this batch still held."""

    token: UUID
    lane: int
    done: int
    retried: int
    released: int
    failed: int
    superseded: int
    missing: int
    lost: int
    duration_seconds: float  # claim to settled
    settle_seconds: float
    first_ages_seconds: Sequence[float] = ()  # created_at to reply, of events done at the first attempt
    by_type: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # (type, outcome, reason) -> n


class NoProgress(Fact, log="batch.no_progress"):
    """A lane claimed a batch without any progress: it was released unsent, lost as a whole, or ended in an error.

    Once is a slow moment; many in a row are a livelock.
    """

    lane: int
    reason: str  # lease_short, half_spent, lease_lost, database, error or unknown
    detail: str
    in_a_row: int  # of this lane, this one included
    wait_seconds: float  # before its next claim


class AttemptFailed(Fact, log="event.failed", level="warning"):
    """`retry_seconds`: when it is retried; None = never."""

    event: Event
    failure: Failure
    retry_seconds: float | None
    dead_reason: DeadReason | None = None


class BulkSent(
    Fact,
    log="bulk.partial_failure",
    level="warning",
    fields="result target duration_ms=duration_seconds counts=failures",
):
    """One request to Elasticsearch. `result`: ok, partial, refused (an HTTP error) or unknown (no readable reply)."""

    result: str
    items: Mapping[str, int]  # written, missing, stale, failed -> n
    failures: Mapping[str, int]  # failure class -> n
    size_bytes: int
    duration_seconds: float
    target: str


class Unclassified(Fact, log="reply.unclassified", level="warning", fields="status error_type"):
    """Elasticsearch's reply matches no classification rule."""

    status: int
    error_type: str


class LeaseLost(Fact, log="lease.lost", level="warning", fields="batch=token where", counts="lost=count"):
    token: UUID
    count: int
    where: str  # settle, release


class Reclaimed(
    Fact,
    log="Reclaimed {count} stuck outbox events (expired lease or max processing exceeded)",
    level="warning",
    counts="reclaimed=count abandoned failed",
):
    count: int
    abandoned: int  # of these, reclaimed from a worker without heartbeats
    failed: int  # of these, failed as crash suspects


class SinkPaused(Fact, log="sink.paused", level="warning", fields="target reason=cause error=detail"):
    target: str
    cause: str
    detail: str


class SinkResumed(Fact, log="sink.resumed", fields="target reason=cause duration_ms=paused_seconds"):
    target: str
    cause: str
    paused_seconds: float


class OperatorPaused(Fact, log="operator.paused", level="warning", fields="scope by reason"):
    scope: str
    by: str
    reason: str


class OperatorResumed(Fact, log="operator.resumed", fields="scope"):
    scope: str


class BrakeOn(
    Fact,
    log="brake.on",
    level="error",
    fields="fingerprint reason error",
    remedy="outbox resume --let-fail {fingerprint}",
):
    fingerprint: str
    reason: str
    error: str


class BrakeOff(Fact, log="brake.off", fields="fingerprint held"):
    fingerprint: str
    held: int


class LimitChanged(Fact, log="limit.changed", level="debug", fields="items reason=why"):
    items: int
    why: str


class VersionAhead(Fact, log="version.ahead", level="warning", fields="event_id entity_type entity_id sent current"):
    """Elasticsearch holds a higher version than any row: a manual edit or a restored database."""

    event_id: UUID
    entity_type: str
    entity_id: str
    sent: int
    current: int


class VersionRaised(
    Fact,
    log="version.raised",
    level="warning",
    fields="was now",
    remedy="was the database restored or failed over? then run `outbox refresh --all`; runbook: OutboxIndexAhead",
):
    was: int
    now: int


class DatabaseLost(Fact, log="database.lost", level="warning", fields="where error"):
    where: str
    error: str


class DatabaseBack(Fact, log="database.back", fields="where duration_ms=away_seconds"):
    where: str
    away_seconds: float


@dataclass(frozen=True, slots=True)
class TypeBacklog:
    """The open events of one configured entity type; `due` could be claimed now."""

    lag: int
    oldest_age_seconds: float
    due: int


@dataclass(frozen=True, slots=True)
class SlotSample:
    """The slot of the event log's connector. `safe_bytes`: what may still be written before it is lost, 0 or less if it
    is; None without a limit."""

    active: bool
    kept_bytes: int
    unread_bytes: int
    safe_bytes: int | None


@dataclass(frozen=True, slots=True)
class FanoutSample:
    """Fan-outs that are open, and the refreshes they wrote so far; those that wait to be projected; failed ones."""

    open: int
    written: int
    oldest_age_seconds: float
    failed: int
    refreshes_open: int
    capped: bool


class BacklogSampled(Fact):
    """One sample of the table. `capped`: there are more rows than it counts; these are minimum values. `slot`: None
    where producers do not write to the event log. `fanouts`: None until they were counted."""

    lag: int  # pending + processing
    oldest_age_seconds: float
    inflight: int
    stuck: int
    due: int
    failed: Mapping[str, int]  # error_reason -> events that are failed now
    lanes: Mapping[str, TypeBacklog]  # configured entity type or `other`
    capped: bool
    duration_seconds: float
    slot: SlotSample | None = None
    fanouts: FanoutSample | None = None


class PartitionsAssigned(Fact, log="stream.assigned", fields="topic partitions"):
    topic: str
    partitions: Sequence[int]


class PartitionsRevoked(Fact, log="stream.revoked", fields="topic partitions"):
    """Others have these partitions now. `lost`: the group thought this worker dead. `in_flight`: records that the next
    owner reads again."""

    topic: str
    partitions: Sequence[int]
    in_flight: int
    lost: bool


class CommitRefused(Fact, log="stream.commit_refused", level="warning", fields="topic offsets error"):
    """Kafka did not take these offsets, by partition: mostly because the partitions have another owner by now."""

    topic: str
    offsets: Mapping[int, int]
    error: str


class StreamGap(
    Fact,
    log="stream.gap",
    level="error",
    fields="topic partition expected found",
    remedy="run `outbox verify`, then `outbox refresh --all`; write events with payloads of that time again",
    runbook="docs/runbooks/OutboxStreamGap.md",
):
    """Records that were to be read are gone, or the topic was made anew: no index has what was in them."""

    topic: str
    partition: int
    expected: int  # the offset that was to be read next
    found: int  # the one that is read instead


class StreamSampled(Fact):
    """Records that are not settled, and the age of the oldest one that was read, by partition of this worker."""

    topic: str
    lag: Mapping[int, int]
    oldest_age_seconds: Mapping[int, float]
    resting: Mapping[int, str] = field(default_factory=dict)  # why nothing of a partition is handed out
    empty: int = 0  # records without value and headers that have passed since the last sample


class StreamFault(Fact, log="stream.fault", level="warning", fields="error"):
    """The client of Kafka met an error; it tries again by itself."""

    error: str


class StreamSeen(Fact):
    """Kafka gave records, or said that there are none."""


class SampleMissed(Fact, log="sample.missed", level="warning", fields="error"):
    """The sampler's query timed out; the last values stay. A lost database is DatabaseLost instead."""

    error: str


class SchemaChecked(Fact):
    ok: bool
    detail: str


class SinkProbed(Fact):
    target: str
    ok: bool
    detail: str = ""


class NodeLeftOut(Fact, log="node.left_out", level="warning", fields="node error"):
    """One of several nodes does not answer: the others get its requests until it does."""

    node: str  # its address, from ELASTIC_URL
    error: str


class NodeBack(Fact, log="node.back", fields="node duration_ms=left_out_seconds"):
    node: str
    left_out_seconds: float


class SinkIdentified(Fact, log="sink.identified", fields="product server_version=version?"):
    """What answers at ELASTIC_URL, once per start. No version: it may not be asked for."""

    product: str
    version: str


class EventsReplayed(Fact, log="replay.dispatched", fields="batch source by", counts="replayed=count skipped"):
    """`source`: cli, api, console or daemon."""

    batch: UUID
    source: str
    count: int
    skipped: int
    by: str


class ReplaySettled(
    Fact,
    log="replay.settled",
    fields="batch status reason? duration_ms=duration_seconds",
    counts="done failed_again still_open",
):
    """`status`: settled, failed, timeout or cancelled."""

    batch: UUID
    status: str
    done: int
    failed_again: int
    still_open: int
    duration_seconds: float
    reason: str = ""


class EventDiscarded(Fact, log="event.discarded", fields="event_id entity_type entity_id by? reason?"):
    """Reported by one daemon, also if another process did it. `by` is the login of what was done by SQL. `batch`: the
    flush that it was part of."""

    event_id: UUID
    entity_type: str
    entity_id: str
    by: str
    reason: str
    batch: UUID | None = None


class EventsFlushed(Fact, log="event.discarded", fields="batch by reason", counts="discarded=count"):
    """Events of one flush, as far as one query found them."""

    batch: UUID
    count: int
    by: str
    reason: str


class TablePruned(Fact, log="prune.done", fields="table duration_ms=duration_seconds", counts="pruned=count"):
    """One pruning pass over one table. `nothing_left`: it ended because nothing more was due."""

    table: str
    count: int
    nothing_left: bool
    duration_seconds: float


class PrunePassed(Fact):
    """A pruning pass over all tables ended. `complete`: it left nothing that is due."""

    complete: bool


class WebhookTried(Fact, log="webhook.failed", level="warning", fields="webhook result attempts=attempt error"):
    """`result`: delivered, failed (will be retried) or given_up."""

    webhook: str
    result: str
    attempt: int
    error: str = ""


class IndexVerified(Fact, log="verify.done", fields="duration_ms=duration_seconds"):
    """How many documents differ from PostgreSQL: missing, stale, orphaned, different, unknown -> n."""

    drift: Mapping[str, int]
    compared: int
    duration_seconds: float
    finished_at: float = 0.0  # seconds since 1970, by the database's clock; 0 = now


class Beat(Fact):
    """A loop completed a round; the watchdog and /healthz use this."""

    loop: str


class Warned(Fact, log="{event}", level="warning", fields="message"):
    """Something a person should check; it stops nothing."""

    event: str
    message: str
    fields: Mapping[str, str | int | float] = field(default_factory=dict)


class AccessVerdict(StrEnum):
    """What became of a request for access to the console."""

    LOGGED_IN = "logged_in"  # at the login page, or a token's first request from its address
    WRONG_TOKEN = "wrong_token"  # noqa: S105
    TOO_OFTEN = "too_often"  # wrong tokens
    ROLE = "role"
    CROSS_SITE = "cross_site"
    HOST = "host"


class AccessJudged(Fact, log="console.access", fields="verdict name? role? client"):
    """Never the token. `told`: enough lines of this client were written, only the count goes on."""

    verdict: AccessVerdict
    client: str
    name: str = ""
    role: str = ""
    told: bool = False


Announce = Callable[[Fact], None]


def silent(_: Fact) -> None:
    """For who has no subscribers, such as a command."""


class Announcer:
    """Passes every fact to every subscriber, in the announcing thread. Exceptions of subscribers go to `on_error`."""

    def __init__(self, on_error: Callable[[Exception], None] | None = None) -> None:
        self._subscribers: list[Announce] = []
        self._on_error = on_error

    def subscribe(self, subscriber: Announce) -> None:
        self._subscribers.append(subscriber)

    def __call__(self, fact: Fact) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(fact)
            except Exception as error:
                # A bug in a metric must never stop a batch between its write and its settle.
                if self._on_error is not None:
                    self._on_error(error)
