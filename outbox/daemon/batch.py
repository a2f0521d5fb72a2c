"""The verdicts of one batch while it is being worked on, and what they add up to. Writes nothing anywhere."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final
from uuid import UUID

from outbox.facts import AttemptFailed, BatchSettled
from outbox.policy.event import Event
from outbox.policy.settle import DONE, NOT_SENT, Done, Failed, Judged, Released, RetryLater, Settlement

_TYPE: Final = itemgetter(Event._fields.index("entity_type"))


class Verdicts:
    """Event -> settlement. Every event of the batch has one before the batch is settled."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._done: list[Event] = []
        self._of: dict[UUID, Settlement] = {}

    def done(self, events: Iterable[Event]) -> None:
        """Plainly written, as nearly all are: kept apart, because a look by UUID is Python's own hash (0.3 us each)."""
        self._done += events

    def give(self, event: Event, settlement: Settlement) -> None:
        self._of[event.id] = settlement

    def give_all(self, verdicts: Iterable[Judged]) -> None:
        for event, settlement in verdicts:
            self._of[event.id] = settlement

    def release_rest(self) -> None:
        """Whoever has no verdict yet was not sent: it goes back with its attempt."""
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
        """One fact a failed attempt of a row that is still ours."""
        if all(settlement is DONE for settlement in self._of.values()):
            return []
        return [fact for event, settlement in self._kept(lost) if (fact := _failed_attempt(event, settlement))]

    def summary(
        self, token: UUID, lane: int, lost: Sequence[UUID], took_seconds: float, settle_seconds: float
    ) -> BatchSettled:
        if lost or self._of:
            kept = self._kept(lost)
            by_type = _by_type(kept)
            first = [e for e, settlement in kept if e.attempts == 1 and isinstance(settlement, Done)]
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


def _done_by_type(done: Sequence[Event]) -> Counter[tuple[str, str, str]]:
    return Counter({(kind, "done", ""): n for kind, n in Counter(map(_TYPE, done)).items()})


def _by_type(kept: Sequence[tuple[Event, Settlement]]) -> Counter[tuple[str, str, str]]:
    """What is plainly done is counted apart: it is nearly all, and needs no look at its settlement."""
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
    """(outcome, reason) as the roll-up counts them."""
    match settlement:
        case Done(why=why):
            return (why or "done", "")
        case RetryLater(failure=failure):
            return ("retried", failure.reason)
        case Failed(failure=failure):
            return ("failed", failure.reason)
        case Released(reason=reason):
            return ("released", reason)
