"""What the daemon and the operations need from the outside, as protocols. Real ones live in store/ and sink/."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol
from uuid import UUID

from outbox.policy.event import Event
from outbox.policy.outcome import Failure, Outcome
from outbox.policy.settle import Settlement


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """What one claim asks for. `suspects` asks for rows abandoned that often instead of fresh and due ones."""

    token: UUID
    limit: int
    retry_limit: int
    floor: int = 0
    entity_type: str | None = None
    suspects: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    token: UUID
    events: Sequence[Event]
    order: ClaimOrder
    asked_at: float | None = None  # boot time before the claim went out: the lease runs no shorter than from then


class Settled(NamedTuple):
    """`kept` rows changed; `lost` rows were no longer ours. Still leased: `busy` rows, which another session has
    locked, and `refused` ones, whose verdict the database would not take, each with its error."""

    kept: int
    lost: Sequence[UUID]
    busy: Sequence[UUID] = ()
    refused: Mapping[UUID, str] = MappingProxyType({})
    changed: bool = False  # an entity type was declared otherwise since the claim: nothing was written


class GivenBack(NamedTuple):
    """`busy`: rows that another session has locked; they stay in their lease until it ends."""

    rows: int
    busy: int


class Reclaim(NamedTuple):
    rows: int
    abandoned: int
    failed: int
    refused: int = 0  # the database would not change them


class Sweep(NamedTuple):
    """`finished`: all open rows were checked. `limited`: the time limit ended a statement of it."""

    rows: int
    finished: bool
    limited: bool = False


class BulkAction(NamedTuple):
    """One line pair of a bulk request. `body` None = delete."""

    index: str  # type: ignore[assignment]
    id: str
    version: int
    routing: str | None
    body: bytes | None


class Document(NamedTuple):
    """What the view says of one entity. No size: the entity is gone. No body: large, load it on its own."""

    body: bytes | None
    size_bytes: int | None
    version: int | None
    failure: Failure | None = None  # this row cannot be read
    routing: str | None = None
    routed: bool = False  # the view says where documents live


class NewerDelete(NamedTuple):
    event_version: int
    routing: str | None


class Named(Protocol):
    """What a document is looked up for: an event, or a comparison."""

    @property
    def id(self) -> UUID: ...
    @property
    def entity_type(self) -> str: ...
    @property
    def entity_id(self) -> str: ...


class EventStore(Protocol):
    """The claim and every way out of it. One statement per call, autocommit. None waits for a locked row."""

    @property
    def has_all_events(self) -> bool:
        """Whether each version that an index holds of an entity is that of a row, if all is well."""
        ...

    def claim(self, order: ClaimOrder) -> Claimed: ...
    def settle(
        self,
        token: UUID,
        settlements: Sequence[tuple[UUID, Settlement]],
        drawn: int | None = None,
        *,
        part: bool = False,
    ) -> Settled:
        """`drawn`: the version under which looked-up documents were written, for people; a verdict may name another.
        `part`: the lease may hold more than these. Without it, a row of the lease that is not among them is done."""
        ...

    def abandon(self, token: UUID, ids: Sequence[UUID], error: str) -> Reclaim:
        """Give rows back as if their worker had died: they are claimed apart, down to the one at fault."""
        ...

    def claim_within_quota(self, order: ClaimOrder) -> Claimed: ...
    def renew(self, token: UUID) -> bool: ...
    def release(self, token: UUID) -> GivenBack: ...
    def unanswered(self, token: UUID) -> None:
        """PostgreSQL is down, so nothing could be written about the batch. It comes back when its lease ends; where
        there is no lease, it must be given back here."""
        ...

    def payloads(self, ids: Sequence[UUID]) -> Mapping[UUID, bytes]: ...
    def deleted(self, events: Sequence[Event]) -> set[UUID]:
        """Those whose entity has a delete event of whatever state."""
        ...

    def lately_done(self, types: Sequence[str], most: int) -> Sequence[Named]:
        """Entities of this type that were projected lately, and were there."""
        ...

    def last_version(self) -> int:
        """The highest version that was given out, right now."""
        ...

    def raise_version(self, seen: int) -> int | None:
        """Move the sequence to a version that an index holds, so that the next is above it: never back. Answers what
        it was, or None where it had gone past that by itself."""
        ...

    def newer_deletes(self, token: UUID, ids: Sequence[UUID]) -> Mapping[UUID, NewerDelete]:
        """Upserts of the batch whose document has a newer delete that is done, by event id. `ids`, all of the batch,
        stand in for a lease that was lost."""
        ...


class RecordRow(NamedTuple):
    """What is stored of a stream's record. `key` names the record for good. No verdict: the work on it ended in an
    error (`error`), so it counts as a death of its worker."""

    key: str
    event: Event
    settlement: Settlement | None
    occurred_at: float | None  # seconds since 1970
    error: str = ""


class RecordStore(Protocol):
    """Where the exceptions of a stream are kept, and what they are checked against."""

    def store(self, rows: Sequence[RecordRow]) -> None:
        """By one statement that changes nothing when it is repeated."""
        ...

    def newer_deletes(self, events: Sequence[Event]) -> Mapping[UUID, NewerDelete]:
        """Of these upserts, those whose document has a newer delete that is done or in flight, by event id."""
        ...

    def open_events(self, topic: str) -> Mapping[int, int]:
        """How many rows of a topic's records wait, by partition."""
        ...

    def unseen(self, transactions: Iterable[int]) -> set[int]:
        """Of these transactions those that are not over: a read would miss what they wrote."""
        ...

    def deleted(self, events: Sequence[Event]) -> set[UUID]: ...
    def last_version(self) -> int: ...
    def raise_version(self, seen: int) -> int | None: ...
    def now(self) -> float:
        """Seconds since 1970 by the database's clock."""
        ...


CLIENT_PREFIX: Final = "outbox-"  # of the name under which a worker is known to Kafka


class PartitionOffsets(NamedTuple):
    """How far a group has come in one partition. Nothing committed: it begins at the oldest record."""

    partition: int
    oldest: int
    end: int  # the offset after the newest record
    committed: int | None
    oldest_age_seconds: float | None = None  # of what is to be read next; None: not known, or nothing is

    @property
    def next(self) -> int:
        return self.oldest if self.committed is None else self.committed

    @property
    def lag(self) -> int:
        return max(self.end - self.next, 0)

    @property
    def is_gone(self) -> bool:
        """What is to be read next is not there: removed, or of a topic that was made anew."""
        return self.committed is not None and not self.oldest <= self.committed <= self.end


class TopicAbout(NamedTuple):
    retention_seconds: float | None  # None: for ever
    is_compacted: bool
    brokers: int = 1
    copies: int = 1  # of the partition that has the fewest
    confirmed: int = 1  # copies that must have a record before its producer hears of it, where it asks for all


class RecordSeen(NamedTuple):
    """One record of the topic, without its payload. `not_event`: why it is none; empty where it is. `origin`: the
    database that wrote it, where the record says so."""

    partition: int
    offset: int
    key: str
    entity_type: str
    version: int
    not_event: str = ""
    origin: str = ""


class GroupReader(NamedTuple):
    """A member of the group, as its broker knows it."""

    client: str
    host: str
    partitions: tuple[int, ...]

    @property
    def worker(self) -> str | None:
        """Our workers' name for themselves; None: another program."""
        return self.client.removeprefix(CLIENT_PREFIX) if self.client.startswith(CLIENT_PREFIX) else None


@dataclass(eq=False, slots=True)
class EntityWait:
    """An entity whose events somebody waits for: those written up to `until`, which the first reading sets."""

    entity_type: str
    entity_id: str
    until: int | None = None


class StreamOffsets(Protocol):
    """How far a group has come in a topic, seen from outside. Raises StreamDown."""

    @property
    def topic(self) -> str: ...
    @property
    def group(self) -> str: ...
    def resting(self, open_events: Mapping[int, int]) -> Mapping[int, str]:
        """Which partitions rest, and why, where so many of their events wait in PostgreSQL."""
        ...

    def read(self) -> Sequence[PartitionOffsets]: ...
    def ages(self, places: Sequence[PartitionOffsets]) -> Mapping[int, float]:
        """By partition, in seconds: of the record that is to be read next. Partitions that do not say it in time are
        left out."""
        ...


class Captured(NamedTuple):
    """How far a connector has read the write-ahead log, both in bytes from its beginning."""

    end: int
    confirmed: int
    active: bool  # a connector uses the slot
    is_lost: bool


class DocumentSource(Protocol):
    """Looks up documents that are not in their events, one query per batch."""

    def draw(self) -> int:
        """A version for all that is read from now on, by a statement of its own. Who reads first and draws then, or
        does both in one statement, writes what is older than its version says."""
        ...

    def exists(self) -> bool:
        """Whether there is a view."""
        ...

    def types_in_view(self, types: Sequence[str]) -> Set[str]:
        """Of these types, those that the view has an entity of. Raises DocumentsUnavailable."""
        ...

    def load(self, events: Sequence[Named], *, whole: bool = False) -> Mapping[UUID, Document]:
        """By event id; `whole` brings large bodies too. Raises DocumentsUnavailable when the view cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class WriteReport:
    """An outcome for every action, in order, and what the requests were like (for AIMD and the breaker)."""

    outcomes: Sequence[Outcome]
    unreachable: Failure | None = None  # the whole sink is down: connect, or no answer to a probe either
    pressure: bool = False  # a 429, breaker, 413 or timeout was met on the way


class Sink(Protocol):
    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport: ...
    def probe(self, target: str) -> Failure | None: ...


class Holder(NamedTuple):
    """Who has a worker id now."""

    start_id: UUID
    host: str
    pid: int
    silent_seconds: float
    heartbeat_seconds: float


class Other(NamedTuple):
    """Another worker: what it writes where (`Projects`, as stored), its id, and its process."""

    projects: Mapping[str, Any]
    worker_id: str
    holder: Holder


class ControlRow(NamedTuple):
    """One control set by an operator, as stored. `kind`: pause or let_fail; `scope`: `*`, `type:T` or `let_fail:F`."""

    scope: str
    kind: str
    by: str
    reason: str


class Mirroring(NamedTuple):
    """What a rebuild asks of daemons: whatever is written to `target` goes to these indexes too. None: no longer."""

    rebuild: int
    revision: int
    target: str
    indexes: tuple[str, ...]


class Refusal(NamedTuple):
    """A document that a second index refused."""

    index: str  # type: ignore[assignment]
    id: str
    error: str


class AliasState(NamedTuple):
    """The one index behind an alias, and the alias's own settings."""

    index: str  # type: ignore[assignment]
    about: Mapping[str, Any]


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    UNKNOWN = "unknown"  # we may not check


class Finding(NamedTuple):
    """One line of `outbox doctor` or `outbox index check`."""

    name: str
    level: Level
    detail: str
    remedy: str = ""


class Pooled(NamedTuple):
    """What stands between us and PostgreSQL. `direct_is_shared` is None where the direct address does not answer."""

    between: bool
    direct_is_shared: bool | None


class CreatedIndex(NamedTuple):
    index: str  # type: ignore[assignment]
    alias: str
    template: str


class OpenCounts(NamedTuple):
    """What waits. `waiting`: retries that are not due yet. `capped`: there is more than was counted."""

    lag: int
    oldest_age_seconds: float
    inflight: int
    stuck: int
    waiting: int
    capped: bool

    @property
    def due(self) -> int:
        return max(self.lag - self.inflight - self.waiting, 0)


@dataclass(frozen=True, slots=True)
class Attachment:
    """One way in which changes of a table become events. One of `id_column` and `via` says whose."""

    table: str
    entity_type: str
    id_column: str | None = None
    via: str | None = None
    columns: tuple[str, ...] = ()
    per_row: bool = False
    older: bool = False
    """Installed by release 0.1.0 with --payload: the row itself as `upsert` and `delete` instead of `refresh`."""

    @property
    def way(self) -> tuple[str, str | None, str | None]:
        """Attaching the same way again renews it."""
        return self.entity_type, self.id_column, self.via

    @property
    def shown(self) -> str:
        return f"{self.entity_type} {f'by {self.id_column}' if self.via is None else f'via {self.via}'}"

    def how(self) -> dict[str, Any]:
        """What was asked for, beside the table."""
        asked = ("entity_type", "id_column", "via", "columns", "per_row")
        return {name: getattr(self, name) for name in asked}

    def command(self, table: str) -> str:
        """The command that installs it; `table` as SQL writes its name."""
        words = ["outbox", "attach", table, "--type", self.entity_type]
        words += ["--id", self.id_column] if self.id_column is not None else ["--via", self.via or ""]
        words += ["--columns", joined_columns(self.columns)] if self.columns else []
        words += ["--per-row"] if self.per_row else []
        return shlex.join(words)


def joined_columns(columns: Iterable[str]) -> str:
    """As `--columns` takes them: a name with a comma, a quote or a blank at its end stands in double quotes."""
    plain = ("".join(['"', name.replace('"', '""'), '"']) if _odd(name) else name for name in columns)
    return ",".join(plain)


def _odd(name: str) -> bool:
    return "," in name or '"' in name or name != name.strip()


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A replication slot. On a standby nothing is known about bytes."""

    plugin: str | None
    active: bool
    wal_status: str | None
    ours: bool  # a logical one of this database
    kept_bytes: int | None
    unread_bytes: int | None
    safe_bytes: int | None


@dataclass(frozen=True, slots=True)
class EventLogFacts:
    """What of the event log is there. `on`: producers write to it."""

    on: bool
    has_publication: bool
    publishes_log: bool
    publishes_inserts: bool
    publishes_more: bool
    wal_level: str
    most_kept_bytes: int | None  # None: no limit
    may_make_days: bool
    days_ahead: int | None
    oldest_day: int | None
    in_default: int
    in_default_shown: str
    slot: SlotFacts | None


@dataclass(frozen=True, slots=True)
class AttachResult:
    """An attachment as it was installed, notes about it, about how many rows are there already (None: not known), and
    the SQL."""

    attachment: Attachment
    notes: tuple[str, ...]
    there: int | None
    sql: str

    @property
    def next(self) -> str:
        """The command that writes the documents of these rows."""
        return shlex.join(["outbox", "backfill", "--type", self.attachment.entity_type]) if self.there != 0 else ""


@dataclass(frozen=True, slots=True)
class PlannedAttachment:
    """One attachment that the view needs. `reason`: what in the view leads from the table to its ids. `state`: new;
    renewed, because what is there covers less; or there."""

    result: AttachResult
    reason: str
    state: Literal["new", "renewed", "there"]


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """What `attach --from-view` would do. With `problems` it does nothing."""

    attachments: tuple[PlannedAttachment, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def to_do(self) -> tuple[PlannedAttachment, ...]:
        return tuple(each for each in self.attachments if each.state != "there")

    @property
    def script(self) -> str:
        """The SQL that installs it; none where something is in the way."""
        return "" if self.problems else "".join(each.result.sql for each in self.to_do)

    @property
    def next(self) -> tuple[str, ...]:
        """The commands that write the documents of the rows that are there already."""
        return tuple(dict.fromkeys(each.result.next for each in self.to_do if each.result.next))


Clock = Callable[[], float]  # monotonic seconds
