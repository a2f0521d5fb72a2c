"""Looked-up documents that were written long after their read: a newer delete may be forgotten by then, so what was
written may have brought back what is gone. They are set apart, to be read and written once more."""

from collections.abc import Iterable

from outbox.daemon.batch import Batch, Delivery
from outbox.policy.event import Event
from outbox.policy.outcome import Failure, Outcome
from outbox.ports import Settled


def set_apart(judged: Iterable[tuple[Delivery, Outcome]], batch: Batch) -> list[tuple[Delivery, Outcome]]:
    """Answers what may be judged as it is. What failed is tried again or failed as ever, while its rows are ours; it
    may have been written all the same, so it may be owed."""
    kept: list[tuple[Delivery, Outcome]] = []
    for delivery, outcome in judged:
        if delivery.drawn and not isinstance(outcome, Failure):
            batch.overtaken.append(delivery.stack)
            continue
        kept.append((delivery, outcome))
        if delivery.drawn:
            batch.late.append(delivery.stack.head)
    return kept


def owed(batch: Batch, settled: Settled) -> list[Event]:
    lost = set(settled.lost)
    return [event for event in batch.late if event.id in lost and not batch.verdicts.is_done(event)]
