"""Decides every verdict, after a write or without one, for an event and for all events of a document. Returns values;
`store.settle` alone writes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from outbox.policy.backoff import Backoff
from outbox.policy.document import Stack
from outbox.policy.event import Event
from outbox.policy.outcome import Accepted, DeadReason, Failure, FailureClass, Missing, Reason, Stale, Written


@dataclass(frozen=True, slots=True)
class Done:
    """`why`: superseded or missing. `gone`: a lookup found no entity. `drawn`: its version, where it is not the
    batch's."""

    why: str | None = None
    gone: bool = False
    drawn: int | None = None


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The attempt is spent; due again after `delay_seconds` by the database's clock."""

    delay_seconds: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class Released:
    """Nobody's fault: the attempt is given back. `delay_seconds` None = at once."""

    reason: str
    delay_seconds: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    failure: Failure
    dead_reason: DeadReason


Settlement = Done | RetryLater | Released | Failed
Judged = tuple[Event, Settlement]
HOLD_SECONDS: Final = 60.0  # of what the brake holds back
DONE: Final = Done()
SUPERSEDED: Final = Done(why="superseded")
MISSING_DONE: Final = Done(why="missing")
NOT_SENT: Final = Released("not_sent")
REFUSED_AHEAD: Final = Released("version_ahead", HOLD_SECONDS)  # by a version that the sequence had not given out
NEWER_IS_RETRIED: Final = Released("newer_is_retried")  # an older event of a document whose newest was not accepted
SHARD_PAUSE_SECONDS: Final = 5.0  # to twice that
MOVING_PAUSE_SECONDS: Final = 1.0  # to twice that: another copy of a shard is its primary within seconds
VIEW_PAUSE_SECONDS: Final = 5.0
TOO_MANY_GONE: Final = Failure(
    Reason.DOCUMENTS_UNAVAILABLE,
    "more than half of the lookups of the last minute found no row: nothing is deleted until the view is right",
)
LOOKUPS_BRAKED: Final = Released("lookups_braked", HOLD_SECONDS, TOO_MANY_GONE)


class Sent(NamedTuple):
    """What was written for an event, where that is not simply its own document under its own version."""

    replaced: bool = False  # a newer delete went in its place
    gone: bool = False  # looked up, and not found
    drawn: bool = False  # under a version that was drawn for its lookup
    redrawn: int | None = None  # that version, where it is not the batch's


OWN: Final = Sent()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    max_attempts: int
    backoff: Backoff
    outage_spends_attempts: bool = True  # OUTBOX_OUTAGE_POLICY: count

    def limit(self, event: Event) -> int:
        return self.max_attempts if event.max_attempts is None else event.max_attempts


def accepted(outcome: Accepted, sent: Sent = OWN) -> Done:
    """The index says what this event wanted, or something newer."""
    if sent.replaced:
        return SUPERSEDED
    if sent.drawn:
        why = "superseded" if isinstance(outcome, Stale) else None
        return Done(why, gone=sent.gone, drawn=sent.redrawn)
    match outcome:
        case Written():
            return DONE
        case Missing():
            return MISSING_DONE
        case Stale():
            return SUPERSEDED


def settle(event: Event, failure: Failure, retry: RetryPolicy, random: Callable[[], float]) -> Settlement:
    """The cases of what was not accepted:

    systemic            a person must act: released unchanged, the target pauses
    deterministic       repeating a refused document cannot help: failed
    transient, shard    under `pause` it costs no attempt; it waits, or it would be claimed again before its neighbours
    transient, outage   under `pause` an outage of the whole sink costs no attempt
    transient, moving   the restart of one of several nodes costs no attempt
    transient           again later, until the attempts are used up; what only a second index met has no such end,
                        because the rebuild ends first
    """
    match failure:
        case Failure(failure_class=FailureClass.SYSTEMIC):
            return Released(failure.reason)
        case Failure(failure_class=FailureClass.DETERMINISTIC):
            return Failed(failure, DeadReason.NON_RETRYABLE)
        case Failure(whole=True) if not retry.outage_spends_attempts:
            if not failure.shard:
                return Released(failure.reason)
            return Released(failure.reason, SHARD_PAUSE_SECONDS * (1 + random()), failure)
        case Failure(moving=True):
            return Released(failure.reason, MOVING_PAUSE_SECONDS * (1 + random()), failure)
        case Failure(second=False) if event.attempts >= retry.limit(event):
            return Failed(failure, DeadReason.MAX_ATTEMPTS_EXCEEDED)
        case _:
            # Not before the server asked for, and not all at that moment.
            asked = min(failure.retry_after_seconds, retry.backoff.cap_seconds)
            return RetryLater(asked + retry.backoff.delay(event.attempts, random()), failure)


class Ruling(NamedTuple):
    """`refused`: the newest event failed for good, and the next older one is to be sent in its place."""

    verdicts: list[Judged]
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Judge:
    retry: RetryPolicy
    admits: Callable[[Failure], bool]  # the brake's answer: may one more event fail with this?
    dice: Callable[[], float]

    def accepted(self, stack: Stack, outcome: Accepted, sent: Sent) -> list[Judged]:
        """The sink has it, or something newer: the older events are superseded."""
        older = Done("superseded", gone=True) if sent.gone else SUPERSEDED
        return [(stack.head, accepted(outcome, sent)), *((event, older) for event in stack.older)]

    def failed(self, stack: Stack, failure: Failure) -> Ruling:
        """The newest event of a document did not get through. The cases for the older ones:

        the whole request failed   each is judged as if it had been in it
        refused for good           the next older one is sent in the same pass; those alike fail with it
        to be tried again, held    released: they are no longer the newest
        """
        head = (stack.head, self.failure(stack.head, failure))
        if failure.whole:
            return Ruling([head, *((event, settle(event, failure, self.retry, self.dice)) for event in stack.older)])
        if isinstance(head[1], Failed):
            return Ruling([head, *((event, self.failure(event, failure)) for event in stack.alike())], refused=True)
        return Ruling([head, *((event, NEWER_IS_RETRIED) for event in stack.older)])

    def failure(self, event: Event, failure: Failure) -> Settlement:
        """Of one event. The brake is asked for deterministic failures only: a row that has used up its attempts fails
        without it."""
        verdict = settle(event, failure, self.retry, self.dice)
        if isinstance(verdict, Failed) and verdict.dead_reason is DeadReason.NON_RETRYABLE and not self.admits(failure):
            return Released("braked", HOLD_SECONDS, failure)
        return verdict
