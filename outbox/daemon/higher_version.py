"""Says what becomes of a document for which the index holds a higher version, and raises the sequence where it is
behind. Sends nothing."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from outbox.daemon.batch import Batch, Delivery
from outbox.daemon.lease import while_leased
from outbox.facts import Announce, VersionAhead, VersionRaised
from outbox.policy.document import refused
from outbox.policy.entity_type import UNDECLARED_DELETE
from outbox.policy.event import HIGHEST_FOLLOWED, Event
from outbox.policy.outcome import Code, Failure, Stale
from outbox.policy.settle import REFUSED_AHEAD, Released
from outbox.ports import EventStore

MOST_ROUNDS: Final = 3  # of a document that meets a higher version each time
AHEAD_KEPT: Final = 1_000


class Again:
    """Drawn, read and sent once more."""


@dataclass(slots=True)
class HigherVersions:
    store: EventStore
    announce: Announce
    # Versions that an index holds and no event of their batch knows, for upkeep to check.
    ahead: deque[tuple[Event, int]] = field(default_factory=lambda: deque(maxlen=AHEAD_KEPT))

    def last_given(self, refused: Iterable[tuple[Delivery, Stale]], batch: Batch) -> int:
        """The sequence's, asked when a refusal for a higher version has just arrived: a moment later it may have gone
        past a version that it had never given out."""
        higher = any((outcome.current or 0) > delivery.version for delivery, outcome in refused)
        return while_leased(self.store.last_version, batch.holding) if higher else 0

    def met(
        self, delivery: Delivery, outcome: Stale, last_given: int, batch: Batch
    ) -> Stale | Again | Released | Failure:
        """The cases:

        not drawn      superseded; noted for upkeep where no event of its batch explains that version. A delete of a
                       type that nobody has declared fails
        drawn          done again: a colleague may have written it, or raised the sequence, before this change
        drawn, again   refused under a number that was drawn after the first refusal: superseded by a later read
        drawn, ahead   the sequence never gave that version out: raised, and done again; never settled as done
        """
        current = outcome.current or 0
        is_ahead = current > max(last_given, delivery.version)
        if not delivery.drawn:
            return self._unread(delivery, outcome, batch, is_ahead=is_ahead)
        stack = delivery.stack
        stack.refused += 1
        if not is_ahead:
            return outcome if stack.refused > 1 else Again()
        if current > HIGHEST_FOLLOWED:
            error = f"the index holds version {current} of this document, above 2^62: rebuild it with `outbox rebuild`"
            return refused(error, Code.PRECONDITION_FAILED)
        self._move_on(delivery, current, batch)
        return REFUSED_AHEAD if stack.refused >= MOST_ROUNDS else Again()

    def _unread(self, delivery: Delivery, outcome: Stale, batch: Batch, *, is_ahead: bool) -> Stale | Failure:
        head = delivery.stack.head
        if head.entity_type in batch.sorted.undeclared:
            return UNDECLARED_DELETE
        current = outcome.current
        explained = current is None or current in {event.event_version for event in delivery.stack.events}
        if is_ahead or (self.store.has_all_events and not explained):
            self.ahead.append((head, current or 0))
        return outcome

    def _move_on(self, delivery: Delivery, current: int, batch: Batch) -> None:
        event = delivery.stack.head
        self.announce(VersionAhead(event.id, event.entity_type, event.entity_id, delivery.version, current))
        was = while_leased(lambda: self.store.raise_version(current), batch.holding)
        if was is not None:
            self.announce(VersionRaised(was, current))
