"""The records of a consumer group as a store of events: a claim takes records that were read, a settle stores what is
no plain success in PostgreSQL by one statement, then closes the offsets. Commits nothing itself (see consumer).

The order is the promise: Elasticsearch answers, PostgreSQL stores, the offset is closed, and only then may it be
committed. What a revoked partition had in flight is closed by nobody here: its next owner reads it again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, Final
from uuid import UUID

from outbox.errors import DatabaseDown, NotStored
from outbox.kafka.fate import AGAIN_SECONDS, Fate, fate, stay_seconds
from outbox.kafka.open_rows import OpenRows
from outbox.kafka.partitions import Handed, Partitions
from outbox.kafka.record import Message, Read, foreign, is_tombstone, key_of, read, read_all
from outbox.policy.event import DELETE, UPSERT, Event
from outbox.policy.settle import DONE, NOT_SENT, Done, Failed, Settlement
from outbox.ports import (
    Claimed,
    ClaimOrder,
    Clock,
    GivenBack,
    NewerDelete,
    Reclaim,
    RecordRow,
    RecordStore,
    Settled,
)

ENDED: Final = "workers ended with the batch that holds it"
PAUSED_SECONDS: Final = 1.0  # before it is asked again whether a person's pause is over
IDLE_SECONDS: Final = 5.0  # between counts of open rows where there are none
UNSEEN_SECONDS: Final = 0.05  # before a record whose transaction is not visible is handed out again
CLOCK_SECONDS: Final = 10.0  # between two readings of the database's clock: clocks drift by far less meanwhile


class SourceTime:
    """The database's clock, from which an event's age is counted, also while the database is down. Runs on by the boot
    clock: a worker's own wall clock decides nothing."""

    def __init__(self, read_clock: Callable[[], float], clock: Clock) -> None:
        self._read_clock = read_clock
        self._clock = clock
        self._base = 0.0
        self._at = float("-inf")

    def now(self) -> float:
        return self._base + self._clock() - self._at

    def tend(self) -> None:
        """Raises DatabaseDown; then the last reading counts on."""
        if self._clock() - self._at > CLOCK_SECONDS:
            asked_at = self._clock()
            self._base = self._read_clock()
            self._at = asked_at


@dataclass(frozen=True, slots=True)
class RecordPart:
    """Records of one partition that are in a batch, each with its event; and those that need no work."""

    handed: Handed
    reads: Sequence[Read]
    messages: Sequence[Message]  # of `reads`
    passed: Sequence[Message]  # tombstones of compaction

    def row(self, place: int, settlement: Settlement | None, error: str = "") -> RecordRow:
        partition, message = self.handed.partition, self.messages[place]
        key = key_of(partition.topic, partition.number, message.offset() or 0)
        return RecordRow(key, self.reads[place].event, settlement, self.reads[place].occurred_at, error)


@dataclass(frozen=True, slots=True)
class InFlight:
    parts: Sequence[RecordPart]
    events: Sequence[Event]
    has_delete: bool

    def is_plain(self, settlements: Sequence[tuple[UUID, Settlement]]) -> bool:
        """Whether every record simply passes, as nearly always."""
        return (
            not self.has_delete
            and len(settlements) == len(self.events)
            and all(settlement is DONE for _, settlement in settlements)
        )


@dataclass(eq=False)
class StreamEvents:
    """One worker's records. Thread-safe."""

    partitions: Partitions
    records: RecordStore
    now: Callable[[], float]
    batch_bytes: int
    most_open: int = 1_000
    database: str = ""
    routed: bool = False
    stopped_types: Callable[[], frozenset[str]] = frozenset
    has_all_events: ClassVar = False  # the table has the exceptions only

    def __post_init__(self) -> None:
        self._open = OpenRows(self.most_open)
        self._next_count = 0.0
        self._batches: dict[UUID, InFlight] = {}  # single operations of a dict are safe

    # Claim

    def claim(self, order: ClaimOrder) -> Claimed:
        if order.suspects:  # those are rows: a table lane takes them
            return Claimed(order.token, (), order)
        handed = self.partitions.take(order.limit, self.batch_bytes)
        try:
            parts = [self._read(each, self.now()) for each in handed]
        except Exception:  # nobody else would put them back
            for each in handed:
                self.partitions.close(each, (), each.messages, 0.0)
            raise
        parts = self._without_paused(self._visible(parts))
        if any(each.handed.partition.suspect for each in parts):
            parts = self._store_unsent(parts)
        parts = self._once_each(parts)
        events = [found.event for part in parts for found in part.reads]
        batch = InFlight(parts, events, any(event.op == DELETE for event in events))
        if not events:
            self._close(batch)
            return Claimed(order.token, (), order)
        self._batches[order.token] = batch
        return Claimed(order.token, events, order)

    def claim_within_quota(self, order: ClaimOrder) -> Claimed:
        return self.claim(order)

    def _read(self, handed: Handed, now: float) -> RecordPart:
        again_below, back = handed.partition.again_below, handed.back
        passed = [message for message in handed.messages if not message.value() and is_tombstone(message)]
        messages = [m for m in handed.messages if not is_tombstone(m)] if passed else handed.messages
        if not self.routed and back == 0 and (not messages or (messages[0].offset() or 0) >= again_below):
            reads = read_all(messages, now)
        else:
            sent, routed = {message.offset() for message in handed.messages[:back]}, self.routed
            again = [(m.offset() or 0) < again_below or m.offset() in sent for m in messages]
            reads = [read(m, now, again=each, routed=routed) for m, each in zip(messages, again, strict=True)]
        if not {found.database for found in reads} <= {None, self.database}:
            reads = [
                foreign(m) if found.is_foreign(self.database) else found
                for found, m in zip(reads, messages, strict=True)
            ]
        return RecordPart(handed, reads, messages, passed)

    def _visible(self, parts: list[RecordPart]) -> list[RecordPart]:
        """A connector may read a commit before snapshots see it, so a lookup would miss the change for which it is
        done: such a record and what follows it in its partition waits, before it is sent or stored, and before a
        version is drawn for it. What brings its own payload reads nothing."""
        asked = {found.transaction for part in parts for found in part.reads if found.event.payload is None} - {None}
        if not asked:
            return parts
        try:
            unseen = self.records.unseen(each for each in asked if each is not None)
        except DatabaseDown:
            unseen = {each for each in asked if each is not None}

        def waits(found: Read) -> bool:
            return found.event.payload is None and found.transaction in unseen

        return self._up_to(parts, waits, UNSEEN_SECONDS) if unseen else parts

    def _without_paused(self, parts: list[RecordPart]) -> list[RecordPart]:
        """A paused entity type holds up its partitions: stored as rows, it would pour the topic into PostgreSQL."""
        stopped = self.stopped_types()

        def waits(found: Read) -> bool:
            return found.event.entity_type in stopped

        return self._up_to(parts, waits, PAUSED_SECONDS) if stopped else parts

    def _up_to(self, parts: list[RecordPart], waits: Callable[[Read], bool], seconds: float) -> list[RecordPart]:
        """Without the first record of each partition that waits, and what follows it."""
        ends = [next((n for n, found in enumerate(part.reads) if waits(found)), len(part.reads)) for part in parts]
        for part, end in zip(parts, ends, strict=True):
            if end < len(part.reads):
                self.partitions.rest_for(part.handed.partition, seconds)
        return self._cut_all(parts, ends)

    def _once_each(self, parts: list[RecordPart]) -> list[RecordPart]:
        """A verdict goes by the event's id, and a connector may send an event twice: the second copy, and what follows
        it in its partition, waits for the next batch."""
        ids = [found.event.id.int for part in parts for found in part.reads]  # a UUID itself is hashed in Python
        if len(set(ids)) == len(ids):
            return parts
        seen: set[int] = set()
        return self._cut_all(parts, (_first_seen(part, seen) for part in parts))

    def _cut_all(self, parts: list[RecordPart], ends: Iterable[int]) -> list[RecordPart]:
        cut = [self._cut(part, end) for part, end in zip(parts, ends, strict=True)]
        return [part for part in cut if part.handed.messages]  # without one, a partition is another lane's already

    def _cut(self, part: RecordPart, end: int) -> RecordPart:
        if end == len(part.reads):
            return part
        offset = part.messages[end].offset() or 0
        self.partitions.give_back_tail(part.handed, offset)
        messages = [m for m in part.handed.messages if (m.offset() or 0) < offset]
        handed = part.handed._replace(messages=messages)
        passed = [m for m in part.passed if (m.offset() or 0) < offset]
        return RecordPart(handed, part.reads[:end], part.messages[:end], passed)

    def _store_unsent(self, parts: list[RecordPart]) -> list[RecordPart]:
        """The first batch of a suspect partition becomes rows, down to the one that ends the process."""
        suspect = [part for part in parts if part.handed.partition.suspect]
        rows = [part.row(place, None, ENDED) for part in suspect for place in range(len(part.reads))]
        try:
            self.records.store(rows)
        except Exception as error:
            for part in parts:
                self._stay(part, part.handed.messages)
            if isinstance(error, DatabaseDown):
                raise NotStored(error.detail) from error
            raise
        # What is stored is closed with the batch, as what needs no work.
        stored = [
            RecordPart(part.handed, (), (), [*part.passed, *part.messages]) if part.handed.partition.suspect else part
            for part in parts
        ]
        for part in suspect:
            part.handed.partition.suspect = False
        return stored

    # Settle

    def settle(
        self,
        token: UUID,
        settlements: Sequence[tuple[UUID, Settlement]],
        drawn: int | None = None,
        *,
        part: bool = False,
    ) -> Settled:
        batch = self._batches.pop(token, None)
        if batch is None:
            return Settled(0, [id for id, _ in settlements])
        if batch.is_plain(settlements):
            return self._close(batch)
        verdicts = GivenVerdicts(settlements, len(batch.events))
        fates = [_exceptions(part, verdicts) for part in batch.parts]
        self._store_exceptions(batch, fates, verdicts)
        return self._close(batch, fates, verdicts)

    def _store_exceptions(self, batch: InFlight, fates: "Fates", verdicts: "GivenVerdicts") -> None:
        """Before any offset is closed. Where that cannot be, what was answered is closed and the rest stays."""
        rows = [
            part.row(place, verdicts.of(part.reads[place].event))
            for part, judged in zip(batch.parts, fates, strict=True)
            if not part.handed.partition.revoked
            for what, place in judged
            if what is Fate.STORE
        ]
        if not rows:
            return
        self._count(batch.parts, fates, verdicts)
        try:
            self.records.store(rows)
        except Exception as error:
            stays = [[(Fate.PASS if f is Fate.PASS else Fate.STAY, place) for f, place in j] for j in fates]
            self._close(batch, stays, stuck=True)
            if isinstance(error, DatabaseDown):
                raise NotStored(error.detail) from error
            raise

    def _count(self, parts: Sequence[RecordPart], fates: "Fates", verdicts: "GivenVerdicts") -> None:
        for part, judged in zip(parts, fates, strict=True):
            stored = [verdicts.of(part.reads[place].event) for what, place in judged if what is Fate.STORE]
            waiting = sum(not isinstance(verdict, Done | Failed) for verdict in stored)
            self._open.stored(part.handed.partition.number, waiting)
        self.partitions.hold(self._open.reasons())

    def tend(self, topic: str, now: float) -> None:
        """Counts the rows that wait, at each call where there are any. While the database is down nothing changes."""
        if now < self._next_count and not self._open.has_any:
            return
        self._next_count = now + IDLE_SECONDS
        with suppress(DatabaseDown):
            self._open.counted(self.records.open_events(topic))
            self.partitions.hold(self._open.reasons())

    def _close(
        self,
        batch: InFlight,
        fates: "Fates | None" = None,
        verdicts: "GivenVerdicts | None" = None,
        *,
        stuck: bool = False,
    ) -> Settled:
        """Without `fates` all of it passes."""
        kept, lost = 0, list[UUID]()
        for part, judged in zip(batch.parts, fates or [()] * len(batch.parts), strict=True):
            stays = [place for what, place in judged if what in (Fate.STAY, Fate.AGAIN)]
            rest = self._rest(part, stays, verdicts, stuck)
            for again in (part.messages[place].offset() or 0 for what, place in judged if what is Fate.AGAIN):
                times = part.handed.partition.again.get(again, 0)
                rest = max(rest, AGAIN_SECONDS[times])
                part.handed.partition.again[again] = times + 1
            if self._close_part(part, stays, rest):
                kept += len(part.reads)
            else:
                lost += [found.event.id for found in part.reads]
        return Settled(kept, lost)

    def _rest(self, part: RecordPart, stays: Sequence[int], verdicts: "GivenVerdicts | None", stuck: bool) -> float:
        if stuck and stays:
            self.partitions.rest(part.handed.partition)
            return 0.0
        part.handed.partition.rests = 0
        if verdicts is None:
            return 0.0
        return max((stay_seconds(verdicts.of(part.reads[place].event)) for place in stays), default=0.0)

    def _close_part(self, part: RecordPart, stays: Sequence[int], rest: float) -> bool:
        if not stays:
            return self.partitions.close(part.handed, part.handed.messages, (), rest, empty=len(part.passed))
        staying = {part.messages[place].offset() for place in stays}
        closed = [m for m in part.handed.messages if m.offset() not in staying]
        kept = [part.messages[place] for place in stays]
        return self.partitions.close(part.handed, closed, kept, rest, empty=len(part.passed))

    # Other ways out

    def abandon(self, token: UUID, ids: Sequence[UUID], error: str) -> Reclaim:
        """As rows whose worker died with them once: a table lane claims them apart, down to the one at fault."""
        batch = self._batches.pop(token, None)
        if batch is None:
            return Reclaim(0, 0, 0)
        ours = [part for part in batch.parts if not part.handed.partition.revoked]
        rows = [part.row(place, None, error) for part in ours for place in range(len(part.reads))]
        try:
            self.records.store(rows)
        except Exception:
            self._close(batch, [[(Fate.STAY, p) for p in range(len(part.reads))] for part in batch.parts], stuck=True)
            raise
        settled = self._close(batch)
        return Reclaim(settled.kept, settled.kept, 0)

    def release(self, token: UUID) -> GivenBack:
        batch = self._batches.pop(token, None)
        if batch is None:
            return GivenBack(0, 0)
        for part in batch.parts:
            self._stay(part, part.messages)
        return GivenBack(len(batch.events), 0)

    def unanswered(self, token: UUID) -> None:
        """Their partitions rest: the view cannot be read now."""
        batch = self._batches.get(token)
        for part in batch.parts if batch else ():
            self.partitions.rest(part.handed.partition)
        self.release(token)

    def renew(self, token: UUID) -> bool:
        """While one partition of the batch is still ours. What the others had is lost at the settle."""
        batch = self._batches.get(token)
        return batch is not None and any(not part.handed.partition.revoked for part in batch.parts)

    def payloads(self, ids: Sequence[UUID]) -> Mapping[UUID, bytes]:
        """They came with their records."""
        return {}

    # What is asked of PostgreSQL

    def deleted(self, events: Sequence[Event]) -> set[UUID]:
        return self.records.deleted(events)

    def lately_done(self, types: Sequence[str], most: int) -> Sequence[Event]:
        """The table has none of them: only what this process has found counts."""
        return ()

    def last_version(self) -> int:
        with _not_waited_for():
            return self.records.last_version()

    def raise_version(self, seen: int) -> int | None:
        with _not_waited_for():
            return self.records.raise_version(seen)

    def newer_deletes(self, token: UUID, ids: Sequence[UUID]) -> Mapping[UUID, NewerDelete]:
        batch = self._batches.get(token)
        upserts = [event for event in batch.events if event.op == UPSERT] if batch else []
        return self.records.newer_deletes(upserts) if upserts else {}

    def _stay(self, part: RecordPart, messages: Sequence[Message]) -> None:
        closed = part.passed if messages is part.messages else ()
        self.partitions.close(part.handed, closed, messages, 0.0)


Fates = Sequence[Sequence[tuple[Fate, int]]]  # of what does not simply pass


class GivenVerdicts:
    """By event; one without a verdict was not sent. Kept by the number of the id, because a UUID itself is hashed in
    Python, and without those that are plainly done, which nearly all are."""

    def __init__(self, settlements: Sequence[tuple[UUID, Settlement]], events: int) -> None:
        every = len(settlements) == events
        self.some_done = any(isinstance(verdict, Done) for _, verdict in settlements)
        self._other = DONE if every else NOT_SENT
        self._of = {id.int: verdict for id, verdict in settlements if verdict is not self._other}

    def of(self, event: Event) -> Settlement:
        return self._of.get(event.id.int, self._other)


def _exceptions(part: RecordPart, verdicts: GivenVerdicts) -> list[tuple[Fate, int]]:
    sent_again = part.handed.partition.again

    def times(place: int) -> int:
        return sent_again.get(part.messages[place].offset() or 0, 0) if sent_again else 0

    return [
        (fate(event, verdict, others_done=verdicts.some_done, times=times(place)), place)
        for place, (event, *_) in enumerate(part.reads)
        if (verdict := verdicts.of(event)) is not DONE or event.op == DELETE
    ]


@contextmanager
def _not_waited_for() -> Iterator[None]:
    """A batch of rows waits for the database as long as its lease lasts; one of records has a lease without an end."""
    try:
        yield
    except DatabaseDown as error:
        raise NotStored(error.detail) from error


def _first_seen(part: RecordPart, seen: set[int]) -> int:
    """The place of the first event that the batch has already, or the end."""
    for place, found in enumerate(part.reads):
        if found.event.id.int in seen:
            return place
        seen.add(found.event.id.int)
    return len(part.reads)
