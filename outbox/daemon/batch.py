"""The verdicts of one batch while it is being worked on, and what they add up to. Writes nothing anywhere."""

from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID

from outbox.facts import AttemptFailed, BatchSettled
from outbox.policy.coalesce import Stack
from outbox.policy.event import Event
from outbox.policy.settle import SUPERSEDED, Done, Failed, Released, RetryLater, Settlement


class Verdicts:
    """Event -> settlement. Every event of the batch has one before the batch is settled."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._of: dict[UUID, Settlement] = {}

    def give(self, event: Event, settlement: Settlement) -> None:
        self._of[event.id] = settlement

    def give_older(self, stack: Stack, settlement: Settlement) -> None:
        for event in stack.older:
            self._of[event.id] = settlement
        stack.older.clear()

    def superseded(self, stack: Stack) -> None:
        self.give_older(stack, SUPERSEDED)

    def release_rest(self, reason: str, delay_seconds: float | None = None) -> None:
        """Whoever has no verdict yet was not sent: it goes back with its attempt."""
        released = Released(reason, delay_seconds)
        for event in self.events:
            self._of.setdefault(event.id, released)

    def of(self, event: Event) -> Settlement | None:
        return self._of.get(event.id)

    def settlements(self) -> list[tuple[UUID, Settlement]]:
        return [(event.id, self._of[event.id]) for event in self.events]

    def failed_attempts(self, lost: Iterable[UUID]) -> list[AttemptFailed]:
        """One fact a failed attempt of a row that is still ours."""
        gone = set(lost)
        return [fact for event in self.events if event.id not in gone and (fact := self._failed_attempt(event))]

    def _failed_attempt(self, event: Event) -> AttemptFailed | None:
        match self._of[event.id]:
            case RetryLater(delay_seconds=delay, failure=failure):
                return AttemptFailed(event, failure, delay)
            case Failed(failure=failure, dead_reason=dead_reason):
                return AttemptFailed(event, failure, None, dead_reason)
            case _:
                return None

    def summary(
        self, token: UUID, lane: int, lost: Iterable[UUID], took_seconds: float, settle_seconds: float
    ) -> BatchSettled:
        gone = set(lost)
        kept = [event for event in self.events if event.id not in gone] if gone else self.events
        by_type = Counter((event.entity_type, *_outcome(self._of[event.id])) for event in kept)
        totals: Counter[str] = Counter()
        for (_, outcome, _), n in by_type.items():
            totals[outcome] += n
        ages = [
            event.age_seconds + took_seconds
            for event in kept
            if event.attempts == 1 and isinstance(self._of[event.id], Done)
        ]
        return BatchSettled(
            token=token,
            lane=lane,
            done=totals["done"] + totals["superseded"] + totals["missing"],
            retried=totals["retried"],
            released=totals["released"],
            failed=totals["failed"],
            superseded=totals["superseded"],
            missing=totals["missing"],
            lost=len(gone),
            duration_seconds=took_seconds,
            settle_seconds=settle_seconds,
            first_ages_seconds=ages,
            by_type=by_type,
        )


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
