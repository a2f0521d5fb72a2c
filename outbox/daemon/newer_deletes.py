"""Checks upserts that are too old to be trusted: none may bring back what a newer delete removed. Elasticsearch forgets
deletes after gc_deletes, PostgreSQL does not."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from outbox.daemon.batch import Batch, Delivery
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Outcome, Written
from outbox.policy.settle import Failed
from outbox.ports import EventStore, NewerDelete, Sink


def find(store: EventStore, batch: Batch) -> Mapping[UUID, NewerDelete]:
    """By event. Without those of this batch that were refused for good: they made room for the older event."""
    asked_at = batch.holding.clock()
    found = store.newer_deletes(batch.claimed.token, batch.holding.ids)
    if not found:
        batch.checked(asked_at)
    refused = {_version_of(e) for e in batch.events if isinstance(batch.verdicts.of(e), Failed)}
    if not found or not refused:
        return found
    events = {event.id: event for event in batch.events}
    return {
        id: delete
        for id, delete in found.items()
        if _version_of(events[id]._replace(event_version=delete.event_version)) not in refused
    }


def own_upserts(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Those under their events' own versions: what was drawn is right whatever was deleted before."""
    return [d for d in deliveries if not d.drawn and d.tombstone is None and d.stack.head.op != DELETE]


def replaced(deliveries: Sequence[Delivery], found: Mapping[UUID, NewerDelete]) -> list[Delivery]:
    """Those in whose place the delete goes out again, in case an earlier try was late."""
    return [d for d in deliveries if d.replace_by(found.get(d.stack.head.id))]


def confirm(
    sink: Sink,
    deliveries: Sequence[Delivery],
    outcomes: Sequence[Outcome],
    found: Mapping[UUID, NewerDelete],
    seconds: float,
) -> Sequence[Outcome]:
    """After the write: a delete that was settled while our upsert was on its way is sent again."""
    overtaken = [
        place
        for place, (delivery, outcome) in enumerate(zip(deliveries, outcomes, strict=True))
        if isinstance(outcome, Written) and replaced(own_upserts([delivery]), found)
    ]
    if not overtaken:
        return outcomes
    second = sink.write([deliveries[place].action() for place in overtaken], seconds)
    after = list(outcomes)
    for place, outcome in zip(overtaken, second.outcomes, strict=True):
        after[place] = outcome
    return after


def _version_of(event: Event) -> tuple[str, str, int]:
    return event.entity_type, event.entity_id, event.event_version
