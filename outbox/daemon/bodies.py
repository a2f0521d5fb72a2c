"""Finds the document of every event that is to be sent, in portions that fit in memory. Sends nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast
from uuid import UUID

from outbox.policy.coalesce import Stack, coalesce
from outbox.policy.document import Parts, Sendable, not_an_object, refused
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Code, Failure
from outbox.ports import Action, Document, DocumentSource, EventStore, NewerDelete

EMPTY_BYTES = 200  # what an action without a body weighs
PAYLOAD_GONE = refused("the payload was removed while the event was on its way; replay it", Code.PAYLOAD_MISSING)

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
        return _action((index, id, self.version, routing, self.body))


@dataclass(slots=True)
class Plain:
    """A batch as nearly every one is: upserts with their bodies at hand, each of a document of its own, none of them
    late. It is sent as it was claimed; a `Delivery` each is made only for those who look at them one by one."""

    sendable: Sendable
    parts: Sequence[Parts]
    delivery: Callable[[Stack], Delivery]
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
    found: dict[UUID, Document] = field(default_factory=dict)

    def needs_lookup(self, event: Event) -> bool:
        return event.op != DELETE and event.payload_bytes is None

    def look_up(self, events: Sequence[Event]) -> Mapping[UUID, Document]:
        assert self.documents is not None
        documents = self.documents.load(events)
        self.found.update(documents)
        return documents

    def delivery(self, stack: Stack) -> Delivery:
        """What is sent for the head. A lookup that found nothing is a versioned delete."""
        event = stack.head
        if event.op == DELETE:
            return Delivery(stack, event.event_version, None)
        if event.payload_bytes is not None:
            return Delivery(stack, event.event_version, event.payload, event.payload_bytes)
        document = self.found[event.id]
        if document.size_bytes is None:
            return Delivery(stack, event.event_version, None, as_delete=True)
        version = event.event_version if document.version is None else document.version
        return Delivery(stack, version, document.body, document.size_bytes)

    def plain(self, sendable: Sendable) -> Plain | None:
        """None: they are not, or not within one portion."""
        parts = sendable.plain()
        if not parts or not self._fit([len(part[4]) for part in parts]):
            return None
        return Plain(sendable, parts, self.delivery)

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
            if document.version is not None:
                delivery.version = document.version
        return bad


def _absent(portion: Sequence[Delivery]) -> list[Delivery]:
    return [d for d in portion if d.body is None and d.size_bytes]
