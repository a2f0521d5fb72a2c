"""What can happen in a daemon, as values in the past tense. Metrics, logs and health subscribe; no logic here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from outbox.policy.event import Event
from outbox.policy.outcome import DeadReason, Failure


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    worker: str
    version: str
    lanes: int
    target: str


@dataclass(frozen=True, slots=True)
class WorkerDraining:
    signal: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    clean: bool
    released: int
    uptime_seconds: float


@dataclass(frozen=True, slots=True)
class BatchClaimed:
    token: UUID
    lane: int
    count: int
    duration_seconds: float
    suspects: bool = False
    traceparents: Sequence[str] = ()  # the producers' trace contexts, where they gave any


@dataclass(frozen=True, slots=True)
class BatchSettled:
    """One batch is settled. The counts add up to the rows that this batch still held."""

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


@dataclass(frozen=True, slots=True)
class NoProgress:
    """A lane claimed a batch without any progress: it was released unsent, lost as a whole, or ended in an error.

    Once is a slow moment; many in a row are a livelock.
    """

    lane: int
    reason: str  # lease_short, half_spent, lease_lost, database, error or unknown
    detail: str
    in_a_row: int  # of this lane, this one included
    wait_seconds: float  # before its next claim


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt of one event failed. `retry_seconds`: when it is retried; None = never."""

    event: Event
    failure: Failure
    retry_seconds: float | None
    dead_reason: DeadReason | None = None


@dataclass(frozen=True, slots=True)
class BulkSent:
    """One request to Elasticsearch. `result`: ok, partial, refused (an HTTP error) or unknown (no readable reply)."""

    result: str
    items: Mapping[str, int]  # written, missing, stale, failed -> n
    failures: Mapping[str, int]  # failure class -> n
    size_bytes: int
    duration_seconds: float
    target: str


@dataclass(frozen=True, slots=True)
class Unclassified:
    """Elasticsearch's reply matches no classification rule."""

    status: int
    error_type: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    token: UUID
    count: int
    where: str  # settle, release


@dataclass(frozen=True, slots=True)
class Reclaimed:
    count: int
    abandoned: int  # of these, reclaimed from a worker without heartbeats
    failed: int  # of these, failed as crash suspects


@dataclass(frozen=True, slots=True)
class SinkPaused:
    target: str
    cause: str
    detail: str


@dataclass(frozen=True, slots=True)
class SinkResumed:
    target: str
    cause: str
    paused_seconds: float


@dataclass(frozen=True, slots=True)
class OperatorPaused:
    scope: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class OperatorResumed:
    scope: str


@dataclass(frozen=True, slots=True)
class BrakeOn:
    fingerprint: str
    reason: str
    error: str


@dataclass(frozen=True, slots=True)
class BrakeOff:
    fingerprint: str
    held: int


@dataclass(frozen=True, slots=True)
class LimitChanged:
    items: int
    why: str


@dataclass(frozen=True, slots=True)
class VersionAhead:
    """Elasticsearch holds a higher version than any row: a manual edit or a restored database."""

    event_id: UUID
    entity_type: str
    entity_id: str
    sent: int
    current: int


@dataclass(frozen=True, slots=True)
class VersionRaised:
    """The version sequence was raised above an index's versions: the database was restored or failed over."""

    was: int
    now: int


@dataclass(frozen=True, slots=True)
class DatabaseLost:
    where: str
    error: str


@dataclass(frozen=True, slots=True)
class DatabaseBack:
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
class BacklogSampled:
    """One sample of the table. `capped`: there are more rows than it counts; these are minimum values. `slot`: None
    where producers do not write to the event log."""

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


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """The group gave these partitions to this worker."""

    topic: str
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """Others have these partitions now. `lost`: the group thought this worker dead. `in_flight`: records that the next
    owner reads again."""

    topic: str
    partitions: Sequence[int]
    in_flight: int
    lost: bool


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """Kafka did not take these offsets, by partition: mostly because the partitions have another owner by now."""

    topic: str
    offsets: Mapping[int, int]
    error: str


@dataclass(frozen=True, slots=True)
class StreamGap:
    """Records that were to be read are gone, or the topic was made anew: no index has what was in them."""

    topic: str
    partition: int
    expected: int  # the offset that was to be read next
    found: int  # the one that is read instead


@dataclass(frozen=True, slots=True)
class StreamSampled:
    """Records that are not settled, and the age of the oldest one that was read, by partition of this worker."""

    topic: str
    lag: Mapping[int, int]
    oldest_age_seconds: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class StreamFault:
    """The client of Kafka met an error; it tries again by itself."""

    error: str


@dataclass(frozen=True, slots=True)
class StreamSeen:
    """Kafka gave records, or said that there are none."""


@dataclass(frozen=True, slots=True)
class SampleMissed:
    """The sampler's query timed out; the last values stay. A lost database is DatabaseLost instead."""

    error: str


@dataclass(frozen=True, slots=True)
class SchemaChecked:
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class SinkProbed:
    """The sink was probed."""

    target: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NodeLeftOut:
    """One of several nodes does not answer: the others get its requests until it does."""

    node: str  # its address, from ELASTIC_URL
    error: str


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A node that was left out answers again and is in use."""

    node: str
    left_out_seconds: float


@dataclass(frozen=True, slots=True)
class SinkIdentified:
    """What answers at ELASTIC_URL, once per start. No version: it may not be asked for."""

    product: str
    version: str


@dataclass(frozen=True, slots=True)
class EventsReplayed:
    """`source`: cli, api, console or daemon."""

    batch: UUID
    source: str
    count: int
    skipped: int
    by: str


@dataclass(frozen=True, slots=True)
class ReplaySettled:
    """`status`: settled, failed, timeout or cancelled."""

    batch: UUID
    status: str
    done: int
    failed_again: int
    still_open: int
    duration_seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EventDiscarded:
    """Reported by one daemon, also if another process did it. `by` is empty if the audit names no person. `batch`: the
    flush that it was part of."""

    event_id: UUID
    entity_type: str
    entity_id: str
    by: str
    reason: str
    batch: UUID | None = None


@dataclass(frozen=True, slots=True)
class EventsFlushed:
    """Events of one flush, as far as one query found them."""

    batch: UUID
    count: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class TablePruned:
    """One pruning pass over one table. `nothing_left`: it ended because nothing more was due."""

    table: str
    count: int
    nothing_left: bool
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class PrunePassed:
    """A pruning pass over all tables ended. `complete`: it left nothing that is due."""

    complete: bool


@dataclass(frozen=True, slots=True)
class WebhookTried:
    """`result`: delivered, failed (will be retried) or given_up."""

    webhook: str
    result: str
    attempt: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class IndexVerified:
    """How many documents differ from PostgreSQL: missing, stale, orphaned, different, unknown -> n."""

    drift: Mapping[str, int]
    compared: int
    duration_seconds: float
    finished_at: float = 0.0  # seconds since 1970, by the database's clock; 0 = now


@dataclass(frozen=True, slots=True)
class Beat:
    """A loop completed a round; the watchdog and /healthz use this."""

    loop: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something a person should check; it stops nothing."""

    event: str
    message: str
    fields: Mapping[str, str | int | float] = field(default_factory=dict)


Fact = (
    WorkerStarted
    | WorkerDraining
    | WorkerStopped
    | BatchClaimed
    | BatchSettled
    | NoProgress
    | AttemptFailed
    | BulkSent
    | Unclassified
    | LeaseLost
    | Reclaimed
    | SinkPaused
    | SinkResumed
    | OperatorPaused
    | OperatorResumed
    | BrakeOn
    | BrakeOff
    | LimitChanged
    | VersionAhead
    | VersionRaised
    | DatabaseLost
    | DatabaseBack
    | BacklogSampled
    | PartitionsAssigned
    | PartitionsRevoked
    | CommitRefused
    | StreamGap
    | StreamSampled
    | StreamFault
    | StreamSeen
    | SampleMissed
    | SchemaChecked
    | SinkProbed
    | NodeLeftOut
    | NodeBack
    | SinkIdentified
    | EventsReplayed
    | ReplaySettled
    | EventDiscarded
    | EventsFlushed
    | TablePruned
    | PrunePassed
    | WebhookTried
    | IndexVerified
    | Beat
    | Warned
)
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
