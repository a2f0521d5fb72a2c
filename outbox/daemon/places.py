"""Says of a delivery where its document is noted and where else it may be. Sends nothing (see placing)."""

from collections.abc import Iterator, Sequence
from functools import partial

from outbox.daemon.batch import Delivery
from outbox.placing import Placed
from outbox.policy.drift import Key
from outbox.policy.places import NotedPlace


def placed(delivery: Delivery) -> Placed:
    if not delivery.stack.viewed:
        return Placed(delivery.action())
    place = None
    if delivery.routed:
        place = NotedPlace(_key(delivery), delivery.as_delete, delivery.routing or "", delivery.version)
        if not delivery.as_delete:
            delivery.stack.wrote.append((place.routing, place.drawn))
    return Placed(delivery.action(), place, partial(_others, delivery))


def _others(delivery: Delivery, noted: Sequence[NotedPlace]) -> Iterator[NotedPlace]:
    """Where this worker itself wrote before, whoever has forgotten it; and where events say that the document was
    before there were places, below the number of a fresh one."""
    known = {row.routing for row in noted if not row.gone} | (set() if delivery.as_delete else {delivery.routing or ""})
    yield from (NotedPlace(_key(delivery), False, *each) for each in delivery.stack.wrote if each[0] not in known)
    hints = {event.routing for event in delivery.stack.events if event.routing}
    if delivery.routed and not known:
        hints.add("")
    number = delivery.version - (not delivery.as_delete)
    yield from (NotedPlace(_key(delivery), False, routing, number) for routing in hints - known)


def _key(delivery: Delivery) -> Key:
    return Key(delivery.stack.head.entity_type, delivery.stack.head.entity_id)
