"""Finds the document of every event that is to be sent, in portions that fit in memory. Sends nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from operator import is_, itemgetter
from typing import Final, cast
from uuid import UUID

from outbox.policy.coalesce import Stack, coalesce
from outbox.policy.document import Parts, Sendable, not_an_object, refused
from outbox.policy.event import DELETE, REFRESH, Event
from outbox.policy.outcome import Code, Failure
from outbox.ports import Action, Clock, Document, DocumentSource, EventStore, NewerDelete

EMPTY_BYTES = 200  # what an action without a body weighs
PAYLOAD_GONE = refused("the payload was removed while the event was on its way; replay it", Code.PAYLOAD_MISSING)

_ID: Final = itemgetter(Event._fields.index("id"))
# `Action(...)` without its frame in Python.
_action: Final = cast(
    Callable[[tuple[str, str, int, str | None, bytes | None]], Action], partial(tuple.__new__, Action)
)


@dataclass(slots=True)
class Delivery:
    """One document to be sent for the head of a stack."""

    stack: Stack
    version: int
    body: bytes | None  # None = delete, or not loaded yet
    size_bytes: int = 0
    as_delete: bool = False  # looked up and gone
    tombstone: NewerDelete | None = None  # a newer delete is sent again in its place
    drawn: bool = False  # `version` was drawn for its lookup: right whatever was written before
    routed: bool = False  # the view says where the document lives
    routing: str | None = None  # what it says

    def replace_by(self, tombstone: NewerDelete | None) -> bool:
        """A newer delete takes this upsert's place on the wire."""
        if tombstone is None:
            return False
        self.tombstone = tombstone
        self.body = None
        self.size_bytes = 0
        return True

    def action(self) -> Action:
        index, id, routing = self.stack.address
        if self.tombstone is not None:
            return Action(index, id, self.tombstone.event_version, self.tombstone.routing, None)
        if self.routed and not self.as_delete:
            routing = self.routing
        return _action((index, id, self.version, routing, self.body))

    def action_for_what_it_left(self) -> Action | None:
        """A delete where the document was, if the view has it somewhere else now."""
        index, id, routing = self.stack.address
        if not self.routed or self.as_delete or routing in (None, self.routing):
            return None
        return Action(index, id, self.version, routing, None)


@dataclass(slots=True)
class Plain:
    """A batch as nearly every one is: upserts with their bodies at hand, each of a document of its own, none of them
    late; or all of them just read from the view. It is sent as it was claimed; a `Delivery` each is made only for those
    who look at them one by one."""

    sendable: Sendable
    parts: Sequence[Parts]
    delivery: Callable[[Stack], Delivery]
    drawn: bool = False  # their versions were, for a lookup
    _deliveries: list[Delivery] = field(default_factory=list)

    @property
    def events(self) -> Sequence[Event]:
        return self.sendable.events

    def actions(self) -> list[Action]:
        return list(map(_action, self.parts))

    def __iter__(self) -> Iterator[Delivery]:
        if not self._deliveries:
            self._deliveries = list(map(self.delivery, coalesce(self.sendable.addressed())))
        return iter(self._deliveries)


Portion = list[Delivery] | Plain


@dataclass(slots=True)
class Bodies:
    """Where bodies come from: the claim itself, the row (large ones), or the view."""

    store: EventStore
    documents: DocumentSource | None
    portion_bytes: int
    clock: Clock
    found: dict[UUID, Document] = field(default_factory=dict)
    drawn: int = 0  # the version of what was read last
    first_drawn: int | None = None
    drawn_at: float = 0.0

    def needs_lookup(self, event: Event) -> bool:
        """Its document is in the view. So is that of a delete, if the view keeps its type: the entity may be there
        again, and only a version that is drawn now is above all that was read before."""
        if event.needs_lookup or event.op != DELETE or self.documents is None:
            return event.needs_lookup
        if not self.documents.keeps(event.entity_type):
            return False
        return event.routing is None or self.documents.says_routing()  # else nobody knows where it lives now

    def look_up(self, events: Sequence[Event]) -> Mapping[UUID, Document]:
        """The version first, then the read. So what is written under a version holds every change whose event drew a
        lower one: it was claimed, and so committed, before that draw, which came before this read."""
        assert self.documents is not None
        self.drawn_at = self.clock()
        self.drawn = self.documents.draw()
        if self.first_drawn is None:
            self.first_drawn = self.drawn
        documents = self.documents.load(events)
        self.found.update(documents)
        return documents

    def age(self) -> float:
        """Seconds since the version was drawn under which looked-up documents are written."""
        return self.clock() - self.drawn_at

    def delivery(self, stack: Stack) -> Delivery:
        """What is sent for the head. A lookup that found nothing is a versioned delete."""
        event = stack.head
        document = self.found.get(event.id)
        if document is None:
            if event.op == DELETE:
                return Delivery(stack, event.event_version, None)
            return Delivery(stack, event.event_version, event.payload, event.payload_bytes or 0)
        version = self._own_version(event, document)
        return Delivery(
            stack,
            self.drawn if version is None else version,
            document.body,
            document.size_bytes or 0,
            as_delete=document.size_bytes is None,
            drawn=version is None,
            routed=document.routed,
            routing=document.routing,
        )

    def _own_version(self, event: Event, document: Document) -> int | None:
        """Of an upsert where the view has versions. None: the one that was drawn."""
        if event.op in (REFRESH, DELETE):
            return None
        if document.version is not None:
            return document.version
        assert self.documents is not None
        return event.event_version if self.documents.keeps_versions(event.entity_type) else None

    def plain(self, sendable: Sendable) -> Plain | None:
        """None: they are not, or not within one portion."""
        parts = sendable.plain()
        if not parts or not self._fit([len(part[4]) for part in parts]):
            return None
        return Plain(sendable, parts, self.delivery)

    def plain_documents(self, sendable: Sendable, found: Mapping[UUID, Document]) -> Plain | None:
        """What was just looked up for all of them. None: one is not there, is large, or has a version or a place of its
        own."""
        if not found or not all(map(is_, map(_ID, sendable.events), found)):
            return None
        bodies, sizes, versions, failures, _, routed = zip(*found.values(), strict=True)
        as_drawn = versions.count(None) == failures.count(None) == len(bodies) and not any(routed)
        if not as_drawn or None in bodies or not self._fit(sizes) or self._has_own_version(sendable):
            return None
        return Plain(sendable, sendable.parts(repeat(self.drawn, len(bodies)), bodies), self.delivery, drawn=True)

    def _has_own_version(self, sendable: Sendable) -> bool:
        """Of events: an upsert keeps its own where the view has versions."""
        assert self.documents is not None
        kinds = {event.entity_type for event in sendable.events if event.op != REFRESH}
        return any(map(self.documents.keeps_versions, kinds))

    def _fit(self, sizes: Sequence[int]) -> bool:
        return sum(sizes) + EMPTY_BYTES * len(sizes) <= self.portion_bytes

    def portions(self, deliveries: Portion) -> Iterator[Portion]:
        """Runs of deliveries whose bodies fit together; a document larger than a portion goes alone."""
        if isinstance(deliveries, Plain) or self._fit([d.size_bytes for d in deliveries]):
            yield deliveries
            return
        portion: list[Delivery] = []
        weight = 0
        for delivery in deliveries:
            size = delivery.size_bytes + EMPTY_BYTES
            if portion and weight + size > self.portion_bytes:
                yield portion
                portion, weight = [], 0
            portion.append(delivery)
            weight += size
        if portion:
            yield portion

    def fill_payloads(self, portion: Sequence[Delivery]) -> list[tuple[Delivery, Failure]]:
        """Load the large payloads of one portion; answers the ones that turn out to be no documents."""
        absent = [d for d in _absent(portion) if d.stack.head.payload_bytes is not None]
        payloads = self.store.payloads([d.stack.head.id for d in absent]) if absent else {}
        bad = []
        for delivery in absent:
            delivery.body = payloads.get(delivery.stack.head.id)
            failure = PAYLOAD_GONE if delivery.body is None else not_an_object(delivery.body)
            if failure is not None:
                bad.append((delivery, failure))
        return bad

    def fill_documents(self, portion: Sequence[Delivery]) -> list[tuple[Delivery, Failure]]:
        """The same for large documents of the view. A second read may find another version, or nothing: what it says
        now is what is sent. Raises DocumentsUnavailable."""
        absent = _absent(portion)
        if not absent or self.documents is None:
            return []
        bad = []
        loaded = self.documents.load([d.stack.head for d in absent], whole=True)
        for delivery in absent:
            document = loaded[delivery.stack.head.id]
            if document.failure is not None:
                bad.append((delivery, document.failure))
                continue
            delivery.body = document.body
            delivery.as_delete = document.size_bytes is None
            delivery.routing = document.routing
            if document.version is not None and not delivery.drawn:
                delivery.version = document.version
        return bad


def _absent(portion: Sequence[Delivery]) -> list[Delivery]:
    return [d for d in portion if d.body is None and d.size_bytes]
