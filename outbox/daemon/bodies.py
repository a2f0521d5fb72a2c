"""Finds the document of every event that is to be sent, in portions that fit in memory. Sends nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from outbox.policy.coalesce import Stack
from outbox.policy.document import not_an_object
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Failure
from outbox.ports import Action, Document, DocumentSource, EventStore, NewerDelete

EMPTY_BYTES = 200  # what an action without a body weighs


@dataclass(slots=True)
class Delivery:
    """One document to be sent for the head of a stack."""

    stack: Stack
    version: int
    body: bytes | None  # None = delete, or not loaded yet
    size_bytes: int = 0
    as_delete: bool = False  # looked up and gone
    tombstone: NewerDelete | None = None  # a newer delete is sent again in its place

    def action(self) -> Action:
        address = self.stack.address
        if self.tombstone is not None:
            return Action(address.index, address.id, self.tombstone.event_version, self.tombstone.routing, None)
        return Action(address.index, address.id, self.version, address.routing, self.body)


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

    def portions(self, deliveries: Sequence[Delivery]) -> Iterator[list[Delivery]]:
        """Runs of deliveries whose bodies fit together; a document larger than a portion goes alone."""
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

    def fill(self, portion: Sequence[Delivery]) -> dict[UUID, Failure]:
        """Load the large bodies of one portion; answers the ones that turn out to be no documents."""
        absent = [d for d in portion if d.body is None and d.size_bytes]
        if not absent:
            return {}
        return self._fill_payloads(absent) | self._fill_documents(absent)

    def _fill_payloads(self, absent: Sequence[Delivery]) -> dict[UUID, Failure]:
        mine = {d.stack.head.id: d for d in absent if d.stack.head.payload_bytes is not None}
        bad: dict[UUID, Failure] = {}
        for id, payload in self.store.payloads(list(mine)).items() if mine else ():
            failure = not_an_object(payload)
            if failure is not None:
                bad[id] = failure
            mine[id].body = payload
        return bad

    def _fill_documents(self, absent: Sequence[Delivery]) -> dict[UUID, Failure]:
        mine = {d.stack.head.id: d for d in absent if d.stack.head.payload_bytes is None}
        if not mine or self.documents is None:
            return {}
        bad: dict[UUID, Failure] = {}
        loaded = self.documents.load([d.stack.head for d in mine.values()], whole=True)
        for id, document in loaded.items():
            delivery = mine[id]
            if document.failure is not None:
                bad[id] = document.failure
            delivery.body = document.body
            delivery.as_delete = document.size_bytes is None
            if document.version is not None:
                delivery.version = document.version
        return bad
