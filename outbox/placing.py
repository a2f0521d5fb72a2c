"""Writes documents whose view says a routing: each place is noted before the write, and every place but the newest is
left after it. Judges nothing. Workers and copiers share it.

A place goes under its own number: a colleague who has written there since has a higher one, and stays. It is cleared,
never removed here: who noted it may still be about to write.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from outbox.policy.drift import Key
from outbox.policy.outcome import WRITTEN, Failure, Outcome
from outbox.policy.places import NotedPlace, left
from outbox.ports import BulkAction, WriteReport

Send = Callable[[Sequence[BulkAction]], WriteReport]
Going = Sequence[tuple[int, NotedPlace]]  # which document of the request, and a place that it leaves


class PlaceBook(Protocol):
    def note(self, places: Sequence[NotedPlace]) -> None: ...
    def of(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[NotedPlace]]: ...
    def clear(self, places: Sequence[NotedPlace]) -> None: ...


class Placed(NamedTuple):
    """A document to write. `others`: where it may be beside the places that are noted, which it is given."""

    action: BulkAction
    place: NotedPlace | None = None  # where its view says a routing
    others: Callable[[Sequence[NotedPlace]], Iterable[NotedPlace]] = lambda noted: ()


def write(book: PlaceBook, documents: Sequence[Placed], send: Send, *, clears: bool = True) -> WriteReport:
    """One request; a second one only where documents have moved or gone."""
    noted = [each.place for each in documents if each.place]
    if noted:
        book.note(noted)
    sent = [n for n, each in enumerate(documents) if not (each.place and each.place.gone)]
    report = send([documents[n].action for n in sent]) if sent else WriteReport(())
    outcomes: list[Outcome] = [report.unreachable or WRITTEN] * len(documents)  # of the gone: nothing was sent yet
    for n, outcome in zip(sent, report.outcomes, strict=True):
        outcomes[n] = outcome
    report = replace(report, outcomes=outcomes)
    going = _going(book, documents, outcomes) if report.unreachable is None else ()
    if not going:
        return report
    held = [(n, place) for n, place in going if not place.gone]
    second = send([_delete(documents[n].action, place) for n, place in held]) if held else WriteReport(())
    for (n, _), outcome in zip(held, second.outcomes, strict=True):
        if isinstance(outcome, Failure):
            outcomes[n] = outcome
    if clears:
        _clear(book, documents, going, outcomes)
    return replace(report, unreachable=second.unreachable)


def _going(book: PlaceBook, documents: Sequence[Placed], outcomes: Sequence[Outcome]) -> Going:
    """What could not be written stays where it was."""
    moved = [(n, each) for n, each in enumerate(documents) if not isinstance(outcomes[n], Failure)]
    keys = [each.place.key for _, each in moved if each.place]
    noted = book.of(keys) if keys else {}
    going: list[tuple[int, NotedPlace]] = []
    for n, each in moved:
        rows = noted[each.place.key] if each.place else ()
        going += [(n, place) for place in (*left(rows), *each.others(rows))]
    return going


def _clear(book: PlaceBook, documents: Sequence[Placed], going: Going, outcomes: Sequence[Outcome]) -> None:
    """Of an entity all or none. One that is gone has no newest place to keep either."""
    done = [(n, place) for n, place in going if not isinstance(outcomes[n], Failure)]
    gone = [place for n in {n for n, _ in done} if (place := documents[n].place) and place.gone]
    if done:
        book.clear([*(place for _, place in done), *gone])


def _delete(action: BulkAction, place: NotedPlace) -> BulkAction:
    return action._replace(version=place.drawn, routing=place.routing or None, body=None)
