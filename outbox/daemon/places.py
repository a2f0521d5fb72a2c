"""Writes documents whose view says a routing: each place is noted before the write, and every place but the newest is
left after it. Judges nothing.

A place goes under its own number: a colleague who has written there since has a higher one, and stays. It is cleared,
never removed here: a worker that noted it may still be about to write.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from outbox.daemon.batch import Delivery
from outbox.policy.drift import Key
from outbox.policy.outcome import WRITTEN, Failure, Outcome
from outbox.policy.places import NotedPlace, left
from outbox.ports import BulkAction, WriteReport

Write = Callable[[Sequence[BulkAction]], WriteReport]


class PlaceBook(Protocol):
    def note(self, places: Sequence[NotedPlace]) -> None: ...
    def of(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[NotedPlace]]: ...
    def clear(self, places: Sequence[NotedPlace]) -> None: ...


@dataclass(frozen=True, slots=True)
class PlacedWrite:
    book: PlaceBook

    def write(self, portion: Sequence[Delivery], send: Write) -> WriteReport:
        """One request; a second one only where documents have moved or gone."""
        placed = [delivery for delivery in portion if delivery.routed]
        if placed:
            self.book.note([_place(delivery) for delivery in placed])
        for delivery in placed:
            if not delivery.as_delete:
                delivery.stack.wrote.append((delivery.routing or "", delivery.version))
        sent = [place for place, d in enumerate(portion) if not (d.routed and d.as_delete)]
        report = send([portion[place].action() for place in sent]) if sent else WriteReport(())
        outcomes: list[Outcome] = [report.unreachable or WRITTEN] * len(portion)  # of the gone: nothing was sent yet
        for place, outcome in zip(sent, report.outcomes, strict=True):
            outcomes[place] = outcome
        report = replace(report, outcomes=outcomes)
        return report if report.unreachable is not None else self._leave(portion, report, send)

    def _leave(self, portion: Sequence[Delivery], report: WriteReport, send: Write) -> WriteReport:
        """What could not be written stays where it was. A refused delete is its delivery's outcome."""
        moved = [n for n, d in enumerate(portion) if d.stack.viewed and not isinstance(report.outcomes[n], Failure)]
        rows = self.book.of([_key(portion[n]) for n in moved if portion[n].routed]) if moved else {}
        going = [(n, place) for n in moved for place in _left(portion[n], rows.get(_key(portion[n]), ()))]
        if not going:
            return report
        held = [(n, place) for n, place in going if not place.gone]
        second = send([_delete(portion[n], place) for n, place in held]) if held else None
        outcomes = list(report.outcomes)
        for (n, _), outcome in zip(held, second.outcomes if second else (), strict=True):
            if isinstance(outcome, Failure):
                outcomes[n] = outcome
        self._clear(portion, going, outcomes)
        return replace(report, outcomes=outcomes, unreachable=second.unreachable if second else None)

    def _clear(
        self, portion: Sequence[Delivery], going: Sequence[tuple[int, NotedPlace]], outcomes: Sequence[Outcome]
    ) -> None:
        """Of an entity all or none. One that is gone has no newest place to keep either."""
        done = [(n, place) for n, place in going if not isinstance(outcomes[n], Failure)]
        gone = [_place(portion[n]) for n in {n for n, _ in done} if portion[n].as_delete and portion[n].routed]
        if done:
            self.book.clear([*(place for _, place in done), *gone])


def _key(delivery: Delivery) -> Key:
    return Key(delivery.stack.head.entity_type, delivery.stack.head.entity_id)


def _place(delivery: Delivery) -> NotedPlace:
    return NotedPlace(_key(delivery), delivery.as_delete, delivery.routing or "", delivery.version)


def _left(delivery: Delivery, rows: Sequence[NotedPlace]) -> Iterator[NotedPlace]:
    """What rows say; where this worker itself wrote before, whoever has forgotten it; and where events say that the
    document was before there were places, below the number of a fresh one."""
    yield from left(rows) if rows else ()
    known = {row.routing for row in rows if not row.gone} | (set() if delivery.as_delete else {delivery.routing or ""})
    yield from (NotedPlace(_key(delivery), False, *each) for each in delivery.stack.wrote if each[0] not in known)
    hints = {event.routing for event in (delivery.stack.head, *delivery.stack.older) if event.routing}
    if delivery.routed and not known:
        hints.add("")
    number = delivery.version - (not delivery.as_delete)
    yield from (NotedPlace(_key(delivery), False, routing, number) for routing in hints - known)


def _delete(delivery: Delivery, place: NotedPlace) -> BulkAction:
    index, id, _ = delivery.stack.address
    return BulkAction(index, id, place.drawn, place.routing or None, None)
