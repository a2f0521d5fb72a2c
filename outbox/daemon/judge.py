"""What the verdict on one document means for each of its events, with the brake in between. Records nothing."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from outbox.daemon.batch import Delivery
from outbox.daemon.brakes import Brakes
from outbox.policy.document import Stack
from outbox.policy.event import Event
from outbox.policy.outcome import Accepted, DeadReason, Failure
from outbox.policy.settle import (
    NEWER_IS_RETRIED,
    Failed,
    Judged,
    RetryPolicy,
    Settlement,
    braked,
    settle,
    superseded_by,
)


class Ruling(NamedTuple):
    """`refused`: the newest event failed for good, and the next older one is to be sent in its place."""

    verdicts: list[Judged]
    refused: bool = False


@dataclass(slots=True)
class Judge:
    retry: RetryPolicy
    brakes: Brakes
    dice: Callable[[], float] = random.random

    def accepted(self, delivery: Delivery, outcome: Accepted) -> list[Judged]:
        """The sink has it, or something newer: the older events are superseded."""
        head, sent = delivery.stack.head, delivery.sent()
        older = superseded_by(sent)
        return [
            (head, settle(head, outcome, self.retry, self.dice, sent)),
            *((event, older) for event in delivery.stack.older),
        ]

    def failed(self, stack: Stack, failure: Failure) -> Ruling:
        """The newest event of a document did not get through. The cases for the older ones:

        the whole request failed   each is judged as if it had been in it
        refused for good           the next older one is sent in the same pass; those alike fail with it
        to be tried again, held    released: they are no longer the newest
        """
        head = (stack.head, self.failure(stack.head, failure))
        if failure.whole:
            return Ruling([head, *((event, self._settle(event, failure)) for event in stack.older)])
        if isinstance(head[1], Failed):
            return Ruling([head, *((event, self.failure(event, failure)) for event in stack.alike())], refused=True)
        return Ruling([head, *((event, NEWER_IS_RETRIED) for event in stack.older)])

    def failure(self, event: Event, failure: Failure) -> Settlement:
        """Of one event. The brake is asked for deterministic failures only: a row that has used up its attempts fails
        without it."""
        verdict = self._settle(event, failure)
        if isinstance(verdict, Failed) and verdict.dead_reason is DeadReason.NON_RETRYABLE:
            return verdict if self.brakes.admit(failure) else braked(failure)
        return verdict

    def _settle(self, event: Event, failure: Failure) -> Settlement:
        return settle(event, failure, self.retry, self.dice)
