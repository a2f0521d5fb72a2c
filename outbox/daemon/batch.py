"""One batch on its way: what was claimed, whether it is in order, the document of each event in portions that fit in
memory, the verdict on each event. Sends nothing and settles nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, starmap
from math import inf
from operator import itemgetter, not_
from typing import Final
from uuid import UUID

from outbox.daemon.declarations import Sorted
from outbox.daemon.lease import Holding, HoldUp
from outbox.facts import AttemptFailed, BatchSettled
from outbox.fast_path import EMPTY_BYTES, Parts, Sendable, all_written, fits
from outbox.policy.document import DOCUMENT_BYTES, Stack, coalesce
from outbox.policy.event import DELETE, FANOUT, Event
from outbox.policy.outcome import Failure, FailureClass, Outcome, Written
from outbox.policy.settle import DONE, NOT_SENT, Done, Failed, Judged, Released, RetryLater, Sent, Settlement
from outbox.ports import BulkAction, Claimed, Clock, Document, DocumentSource, EventStore, NewerDelete, WriteReport

# Half of what Elasticsearch remembers a delete for by default (`index.gc_deletes`, 60 s); the other half is for
# requests on their way and for producers' clocks.
TRUSTED_SECONDS: Final = 30.0
_TYPE: Final = itemgetter(Event._fields.index("entity_type"))
_OP: Final = itemgetter(Event._fields.index("op"))
_ATTEMPTS, _RETRIED, _REPLAYED, _ABANDONED, _AGE = (
    itemgetter(Event._fields.index(name))
    for name in ("attempts", "retried", "replay_count", "abandoned_count", "age_seconds")
)


def known_since(events: Sequence[Event], claimed_at: float) -> float:
    """Since when each delete that is newer than one of these events is remembered by Elasticsearch: since the oldest
    was written. Never, where someone was claimed before, or where a producer's clock is ahead: then it says nothing
    about the age. Known from the rows alone, so every process knows it, however idle it was. Six passes at C speed,
    0.2 us per event."""
    if not events:
        return claimed_at
    tried = (
        max(map(_ATTEMPTS, events)) > 1
        or any(map(_RETRIED, events))
        or any(map(_REPLAYED, events))
        or any(map(_ABANDONED, events))
    )
    return -inf if tried or min(map(_AGE, events)) < 0 else claimed_at - max(map(_AGE, events))


@dataclass(slots=True)
class Delivery:
    stack: Stack
    version: int
    body: bytes | None  # None = delete, or not loaded yet
    size_bytes: int = 0
    as_delete: bool = False  # looked up and gone
    tombstone: NewerDelete | None = None  # a newer delete is sent again in its place
    routed: bool = False  # the view says where the document lives
    routing: str | None = None  # what it says

    @property
    def drawn(self) -> bool:
        """Its version was, for its lookup: right whatever was written before."""
        return self.stack.viewed

    def replace_by(self, tombstone: NewerDelete | None) -> bool:
        """A newer delete takes this upsert's place on the wire."""
        if tombstone is None:
            return False
        self.tombstone = tombstone
        self.body = None
        self.size_bytes = 0
        return True

    def action(self) -> BulkAction:
        index, id, routing = self.stack.address
        if self.tombstone is not None:
            return BulkAction(index, id, self.tombstone.event_version, self.tombstone.routing, None)
        return BulkAction(index, id, self.version, self.routing if self.drawn else routing, self.body)

    def sent(self) -> Sent:
        redrawn = self.version if self.drawn and self.stack.refused else None
        return Sent(self.tombstone is not None, self.as_delete, self.drawn, redrawn)

    @property
    def is_plain(self) -> bool:
        """Once it is written, its event is simply done, and no other gets a verdict by it."""
        return not (self.stack.older or self.as_delete or self.tombstone or self.stack.refused)


@dataclass(frozen=True, slots=True)
class Plain:
    """A batch as nearly every one is: upserts with their bodies at hand, each of a document of its own; or all of them
    just read from the view. It is sent as it was claimed."""

    sendable: Sendable
    parts: Sequence[Parts]
    bodies: "Bodies"
    viewed: frozenset[str] = frozenset()  # their types, where the view keeps them

    def __len__(self) -> int:
        return len(self.parts)

    def indexes(self) -> Sequence[str]:
        return self.sendable.indexes

    def deliveries(self) -> "Rows":
        return Rows(map(self.bodies.delivery, coalesce(self.sendable.addressed(), self.viewed)))

    def split(self, most_bytes: int) -> "Iterable[Plain]":
        return (self,)

    def actions(self) -> list[BulkAction]:
        return list(starmap(BulkAction, self.parts))

    def looked_up_apart(self) -> "Rows":
        return NOTHING

    def has_large(self, most_bytes: int) -> bool:
        return False

    def settle(self, outcomes: Sequence[Outcome], batch: "Batch") -> tuple["Rows", Sequence[Outcome]]:
        if batch.too_old(drawn=bool(self.viewed)):
            return self.deliveries(), outcomes
        if all_written(outcomes):
            batch.verdicts.done(self.sendable.events)
            return NOTHING, ()
        rest = [not isinstance(outcome, Written) for outcome in outcomes]
        batch.verdicts.done(compress(self.sendable.events, map(not_, rest)))
        others = Plain(self.sendable.only(rest), list(compress(self.parts, rest)), self.bodies, self.viewed)
        return others.deliveries(), list(compress(outcomes, rest))


class Rows(list[Delivery]):
    """A batch whose documents are judged one by one. What the methods of both answer:

    looked_up_apart   all of it, where the place of some document has to be noted: one that the view says a routing of
    has_large         whether the body of one is not at hand, or above the limit
    settle            those that are not simply done, with their outcomes. The others are recorded
    """

    def indexes(self) -> Sequence[str]:
        return [delivery.stack.address.index for delivery in self]

    def deliveries(self) -> "Rows":
        return self

    def split(self, most_bytes: int) -> Iterator["Rows"]:
        """Runs whose bodies fit together; a document larger than a portion goes alone."""
        if fits([d.size_bytes for d in self], most_bytes):
            yield self
            return
        portion, weight = Rows(), 0
        for delivery in self:
            size = delivery.size_bytes + EMPTY_BYTES
            if portion and weight + size > most_bytes:
                yield portion
                portion, weight = Rows(), 0
            portion.append(delivery)
            weight += size
        if portion:
            yield portion

    def actions(self) -> list[BulkAction]:
        return [delivery.action() for delivery in self]

    def looked_up_apart(self) -> "Rows":
        return self if any(delivery.drawn for delivery in self) else NOTHING

    def has_large(self, most_bytes: int) -> bool:
        return any(d.size_bytes > most_bytes or (d.body is None and d.size_bytes) for d in self)

    def settle(self, outcomes: Sequence[Outcome], batch: "Batch") -> tuple["Rows", Sequence[Outcome]]:
        for delivery in self:
            delivery.body = None  # sent: its memory is free before the next portion is loaded
        if any(batch.too_old(drawn=drawn) for drawn in {delivery.drawn for delivery in self}):
            return self, outcomes
        plain = [d.is_plain and isinstance(o, Written) for d, o in zip(self, outcomes, strict=True)]
        batch.verdicts.done(delivery.stack.head for delivery in compress(self, plain))
        rest = list(map(not_, plain))
        return Rows(compress(self, rest)), list(compress(outcomes, rest))


Portion = Plain | Rows  # documents that are sent together
NOTHING: Final = Rows()


@dataclass(slots=True)
class Bodies:
    """Where bodies come from: the claim itself, the row (large ones), or the view."""

    store: EventStore
    documents: DocumentSource
    clock: Clock
    most_bytes: int = DOCUMENT_BYTES  # of one document
    found: dict[UUID, Document] = field(default_factory=dict)
    drawn: int = 0  # the version of what was read last
    first_drawn: int | None = None
    drawn_at: float = inf

    def look_up(self, events: Sequence[Event]) -> Mapping[UUID, Document]:
        """The version first, then the read. So what is written under a version holds every change whose event drew a
        lower one: it was claimed, and so committed, before that draw, which came before this read."""
        self.drawn_at = self.clock()
        self.drawn = self.documents.draw()
        if self.first_drawn is None:
            self.first_drawn = self.drawn
        documents = self.documents.load(events)
        self.found.update(documents)
        return documents

    def delivery(self, stack: Stack) -> Delivery:
        """What is sent for the head. A lookup that found nothing is a versioned delete."""
        event = stack.head
        if not stack.viewed:
            if event.op == DELETE:
                return Delivery(stack, event.event_version, None)
            return Delivery(stack, event.event_version, event.payload, event.payload_bytes or 0)
        document = self.found[event.id]
        return Delivery(
            stack,
            self.drawn,
            document.body,
            document.size_bytes or 0,
            as_delete=document.size_bytes is None,
            routed=document.routed,
            routing=document.routing,
        )


def documents_of(events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
    """Events of documents, and fan-outs. Nearly always there is none of these: one pass at C speed."""
    if FANOUT not in map(_OP, events):
        return events, ()
    return [e for e in events if e.op != FANOUT], [e for e in events if e.op == FANOUT]


class Verdicts:
    """Event -> settlement. Every event of the batch has one before the batch is settled."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._done: list[Event] = []
        self._of: dict[UUID, Settlement] = {}

    def done(self, events: Iterable[Event]) -> None:
        """Plainly written, as nearly all are: kept apart, because a lookup by UUID hashes in Python (0.3 us each)."""
        self._done += events

    def give(self, event: Event, settlement: Settlement) -> None:
        self._of[event.id] = settlement

    def give_all(self, verdicts: Iterable[Judged]) -> None:
        for event, settlement in verdicts:
            self._of[event.id] = settlement

    def forget(self) -> None:
        """The batch is done again as a whole."""
        self._done, self._of = [], {event.id: NOT_SENT for event in self.events}

    def release_rest(self) -> None:
        """An event without a verdict was not sent: it goes back with its attempt."""
        if len(self._done) + len(self._of) == len(self.events):
            return
        done = {event.id for event in self._done}
        for event in self.events:
            if event.id not in done:
                self._of.setdefault(event.id, NOT_SENT)

    @property
    def none_given(self) -> bool:
        return not self._done and not self._of

    @property
    def none_moved(self) -> bool:
        """Whatever has a verdict goes back as it was."""
        return not self._done and all(isinstance(settlement, Released) for settlement in self._of.values())

    def is_done(self, event: Event) -> bool:
        return isinstance(self._of.get(event.id), Done) or any(event is done for done in self._done)

    def of(self, event: Event) -> Settlement | None:
        """Of an event that the sink has not taken."""
        return self._of.get(event.id)

    def settlements(self) -> list[tuple[UUID, Settlement]]:
        return [(event.id, DONE) for event in self._done] + list(self._of.items())

    def _kept(self, lost: Iterable[UUID]) -> list[tuple[Event, Settlement]]:
        """Rows that are still ours, with what became of them. Nearly always all, and all done."""
        kept: list[tuple[Event, Settlement]] = [(event, DONE) for event in self._done]
        if of := self._of:
            kept += [(event, of[event.id]) for event in self.events if event.id in of]
        if gone := set(lost):
            kept = [(event, settlement) for event, settlement in kept if event.id not in gone]
        return kept

    def failed_attempts(self, lost: Iterable[UUID]) -> list[AttemptFailed]:
        if all(settlement is DONE for settlement in self._of.values()):
            return []
        return [fact for event, settlement in self._kept(lost) if (fact := _failed_attempt(event, settlement))]

    def summary(
        self, token: UUID, lane: int, lost: Sequence[UUID], took_seconds: float, settle_seconds: float
    ) -> BatchSettled:
        if lost or self._of:
            kept = self._kept(lost)
            by_type = _by_type(kept)
            done = (e for e, settlement in kept if isinstance(settlement, Done) and e.op != FANOUT)
            first = [e for e in done if e.attempts == 1]
        else:
            by_type = _done_by_type(self._done)
            first = [e for e in self._done if e.attempts == 1]
        totals: Counter[str] = Counter()
        for (_, outcome, _), n in by_type.items():
            totals[outcome] += n
        return BatchSettled(
            token=token,
            lane=lane,
            done=totals["done"] + totals["superseded"] + totals["missing"],
            retried=totals["retried"],
            released=totals["released"],
            failed=totals["failed"],
            superseded=totals["superseded"],
            missing=totals["missing"],
            lost=len(lost),
            duration_seconds=took_seconds,
            settle_seconds=settle_seconds,
            first_ages_seconds=[max(event.age_seconds, 0.0) + took_seconds for event in first],
            by_type=by_type,
        )


@dataclass(slots=True)
class Batch:
    """One batch on its way: what was claimed, how long it may take, where its bodies are, what became of it. `events`:
    those of documents; the rest are fan-outs."""

    claimed: Claimed
    events: Sequence[Event]
    holding: Holding
    bodies: Bodies
    verdicts: Verdicts
    known_since: float  # by the clock of `holding`
    overtaken: list[Stack] = field(default_factory=list)  # looked up too long before they were written
    late: list[Event] = field(default_factory=list)  # written too late, or perhaps: owed where nothing brings it right
    sorted: Sorted = field(default_factory=lambda: Sorted(frozenset()))

    def too_old(self, *, drawn: bool) -> bool:
        """The one question of age. Whether a newer delete may be forgotten by Elasticsearch: an upsert under its own
        version could bring back what is gone, unless PostgreSQL is asked; what was looked up has to be read again."""
        return self.holding.clock() - (self.bodies.drawn_at if drawn else self.known_since) > TRUSTED_SECONDS

    def checked(self, at: float) -> None:
        """PostgreSQL had no newer delete. Asking costs 5 us of CPU per event (3.4 % of `drain`, median of five rounds),
        and only a backlog pays it. For what was claimed before it is asked again after the write."""
        if self.known_since > -inf:
            self.known_since = at


@dataclass(slots=True)
class BatchResult:
    unreachable: Failure | None = None
    systemic: bool = False
    sent: bool = False
    judged: bool = False  # the sink accepted or refused one document at least
    away: bool = False  # all that was sent belongs to a shard that is down, which says nothing about others
    hold_up: HoldUp | None = None  # what ended the sending early
    no_progress: HoldUp | None = None  # set where nothing at all came of the batch

    @property
    def stalled(self) -> bool:
        """All that was sent met overload or an error of the server's: more of the same would not help it."""
        return self.sent and not self.judged

    def learn(self, written: WriteReport, systemic: bool) -> None:
        self.unreachable = written.unreachable
        self.systemic = self.systemic or systemic
        self.away = (self.away or not self.sent) and all(map(_is_away, written.outcomes))
        self.sent = self.sent or bool(written.outcomes)
        self.judged = self.judged or not all(map(_is_transient, written.outcomes))


def _done_by_type(done: Sequence[Event]) -> Counter[tuple[str, str, str]]:
    return Counter({(kind, "done", ""): n for kind, n in Counter(map(_TYPE, done)).items()})


def _by_type(kept: Sequence[tuple[Event, Settlement]]) -> Counter[tuple[str, str, str]]:
    """What is plainly done is counted apart: it is nearly all, and its settlement need not be matched."""
    by_type = _done_by_type([event for event, settlement in kept if settlement is DONE])
    by_type.update((event.entity_type, *_outcome(settlement)) for event, settlement in kept if settlement is not DONE)
    return by_type


def _failed_attempt(event: Event, settlement: Settlement) -> AttemptFailed | None:
    match settlement:
        case RetryLater(delay_seconds=delay, failure=failure):
            return AttemptFailed(event, failure, delay)
        case Failed(failure=failure, dead_reason=dead_reason):
            return AttemptFailed(event, failure, None, dead_reason)
        case _:
            return None


def _outcome(settlement: Settlement) -> tuple[str, str]:
    match settlement:
        case Done(why=why):
            return (why or "done", "")
        case RetryLater(failure=failure):
            return ("retried", failure.reason)
        case Failed(failure=failure):
            return ("failed", failure.reason)
        case Released(reason=reason):
            return ("released", reason)


def _is_transient(outcome: Outcome) -> bool:
    return isinstance(outcome, Failure) and outcome.failure_class is FailureClass.TRANSIENT


def _is_away(outcome: Outcome) -> bool:
    return isinstance(outcome, Failure) and outcome.shard
