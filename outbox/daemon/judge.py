"""What the verdict on one document means for each of its events, with the brake in between. Settles nothing."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from outbox.daemon.batch import Delivery
from outbox.facts import Announce, BrakeOff, BrakeOn
from outbox.policy.brake import Brake
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
from outbox.ports import Clock


class Ruling(NamedTuple):
    """`refused`: the newest event failed for good, and the next older one is to be sent in its place."""

    verdicts: list[Judged]
    refused: bool = False


@dataclass(slots=True)
class Judge:
    """One process's; lanes share it, because the brake counts over all of them."""

    retry: RetryPolicy
    announce: Announce
    clock: Clock
    dice: Callable[[], float] = random.random
    brake: Brake = field(default_factory=Brake)
    _lock: threading.Lock = field(default_factory=threading.Lock)

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
            return verdict if self._admit(failure) else braked(failure)
        return verdict

    def _admit(self, failure: Failure) -> bool:
        """May one more event fail with this?"""
        fingerprint = failure.fingerprint or failure.reason
        with self._lock:
            was_on = self.brake.is_on(fingerprint)
            admitted = self.brake.admit(fingerprint, self.clock())
        if not admitted and not was_on:
            self.announce(BrakeOn(fingerprint, failure.reason, failure.error))
        return admitted

    def let_fail(self, chosen: frozenset[str]) -> None:
        """Called every second: what operators let fail, and fingerprints that have come to rest."""
        with self._lock:
            self.brake.let_fail = chosen
            released = self.brake.released(self.clock())
        for fingerprint, held in released:
            self.announce(BrakeOff(fingerprint, held))

    def _settle(self, event: Event, failure: Failure) -> Settlement:
        return settle(event, failure, self.retry, self.dice)
