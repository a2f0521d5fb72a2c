"""What can happen in a daemon, as values in the past tense. Who counts, logs or waits subscribes; none acts here."""

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
    """One batch is over. The counts add up to the rows that this batch still held."""

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
    first_ages_seconds: Sequence[float] = ()  # created_at to acknowledged, of first attempts that are done
    by_type: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # (type, outcome, reason) -> n


@dataclass(frozen=True, slots=True)
class NoProgress:
    """A lane claimed a batch and nothing came of it: it went back unsent, was lost whole, or ended in an error.

    Once is a slow moment; again and again is a livelock.
    """

    lane: int
    reason: str  # lease_short, half_spent, lease_lost, database, error or unknown
    detail: str
    in_a_row: int  # of this lane, this one included
    wait_seconds: float  # before its next claim


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """One event of this batch did not get through; `retry_seconds` says when it is tried again, None = never."""

    event: Event
    failure: Failure
    retry_seconds: float | None
    dead_reason: DeadReason | None = None


@dataclass(frozen=True, slots=True)
class BulkSent:
    """One request to Elasticsearch. `result`: ok, partial, refused (an HTTP error) or unknown (no readable answer)."""

    result: str
    items: Mapping[str, int]  # written, missing, stale, failed -> n
    failures: Mapping[str, int]  # failure class -> n
    size_bytes: int
    duration_seconds: float
    target: str


@dataclass(frozen=True, slots=True)
class Unclassified:
    """Elasticsearch answered something that the table of failures does not know."""

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
    abandoned: int  # of these, taken from a process that no longer beats
    failed: int  # of these, given up as crash suspects


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
    """Elasticsearch holds a version that no row of ours knows: a hand edit or a restored database."""

    event_id: UUID
    entity_type: str
    entity_id: str
    sent: int
    current: int


@dataclass(frozen=True, slots=True)
class VersionRaised:
    """The version sequence was moved above what an index holds: the database was restored, or failed over."""

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
    """What waits for one configured entity type; `due` could be claimed at once."""

    lag: int
    oldest_age_seconds: float
    due: int


@dataclass(frozen=True, slots=True)
class BacklogSampled:
    """The table as the sampler saw it. `capped`: there are more rows than it counts; these are least values."""

    lag: int  # pending + processing
    oldest_age_seconds: float
    inflight: int
    stuck: int
    due: int
    failed: Mapping[str, int]  # error_reason -> rows now failed
    lanes: Mapping[str, TypeBacklog]  # configured entity type or `other`
    capped: bool
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class SampleMissed:
    """The sampler got no answer in time; the last values stand. A lost database is DatabaseLost instead."""

    error: str


@dataclass(frozen=True, slots=True)
class SchemaChecked:
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class SinkProbed:
    """Someone asked the sink whether it is there."""

    target: str
    ok: bool
    detail: str = ""


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
    """Told by one daemon, whoever did it. `by` is empty where no act of ours did it. `batch`: it was flushed with
    others."""

    event_id: UUID
    entity_type: str
    entity_id: str
    by: str
    reason: str
    batch: UUID | None = None


@dataclass(frozen=True, slots=True)
class EventsFlushed:
    """Events of one flush, as far as one look has seen them."""

    batch: UUID
    count: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """One pass over one table. `nothing_left`: it ended because nothing more was due."""

    table: str
    count: int
    nothing_left: bool
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class PrunePassed:
    """A pass over all tables is over. `complete`: it left nothing that is due."""

    complete: bool


@dataclass(frozen=True, slots=True)
class WebhookTried:
    """`result`: delivered, failed (it is tried again) or given_up."""

    webhook: str
    result: str
    attempt: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """How many documents differ from PostgreSQL: missing, stale, orphaned, different, unknown -> n."""

    drift: Mapping[str, int]
    looked_at: int
    duration_seconds: float
    finished_at: float = 0.0  # seconds since 1970, by the database's clock; 0 = now


@dataclass(frozen=True, slots=True)
class Beat:
    """A loop has come round: what the watchdog and /healthz live on."""

    loop: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something a person should look at, that stops nothing."""

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
    | SampleMissed
    | SchemaChecked
    | SinkProbed
    | EventsReplayed
    | ReplaySettled
    | EventDiscarded
    | EventsFlushed
    | Pruned
    | PrunePassed
    | WebhookTried
    | Verified
    | Beat
    | Warned
)
Announce = Callable[[Fact], None]


class Announcer:
    """Hands every fact to every subscriber, in the announcing thread. What a subscriber raises goes to `on_error`."""

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
                # A broken metric must never stop a batch between Elasticsearch and settle.
                if self._on_error is not None:
                    self._on_error(error)
