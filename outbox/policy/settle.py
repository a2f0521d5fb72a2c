"""Decides every verdict, after a write or without one. Returns values; `store.settle` alone writes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from outbox.policy.backoff import Backoff
from outbox.policy.brake import HOLD_SECONDS
from outbox.policy.event import Event
from outbox.policy.outcome import Accepted, DeadReason, Failure, FailureClass, Missing, Outcome, Reason, Stale, Written


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


def settle(
    event: Event, outcome: Outcome, retry: RetryPolicy, random: Callable[[], float], sent: Sent = OWN
) -> Settlement:
    """The cases, in the order in which they are common:

    accepted            the index says what this event wanted, or something newer: done
    systemic            a person must act: released unchanged, the target pauses
    deterministic       repeating a refused document cannot help: failed
    transient, shard    under `pause` it costs no attempt; it waits, or it would be claimed again before its neighbours
    transient, outage   under `pause` an outage of the whole sink costs no attempt
    transient, moving   the restart of one of several nodes costs no attempt
    transient           again later, until the attempts are used up; what only a second index met has no such end,
                        because the rebuild ends first
    """
    match outcome:
        case Written() | Missing() | Stale():
            return _accepted(outcome, sent)
        case Failure(failure_class=FailureClass.SYSTEMIC):
            return Released(outcome.reason)
        case Failure(failure_class=FailureClass.DETERMINISTIC):
            return Failed(outcome, DeadReason.NON_RETRYABLE)
        case Failure(whole=True) if not retry.outage_spends_attempts:
            if not outcome.shard:
                return Released(outcome.reason)
            return Released(outcome.reason, SHARD_PAUSE_SECONDS * (1 + random()), outcome)
        case Failure(failure_class=FailureClass.TRANSIENT, moving=True):
            return Released(outcome.reason, MOVING_PAUSE_SECONDS * (1 + random()), outcome)
        case Failure(second=False) if event.attempts >= retry.limit(event):
            return Failed(outcome, DeadReason.MAX_ATTEMPTS_EXCEEDED)
        case _:
            # Not before the server asked for, and not all at that moment.
            asked = min(outcome.retry_after_seconds, retry.backoff.cap_seconds)
            return RetryLater(asked + retry.backoff.delay(event.attempts, random()), outcome)


def _accepted(outcome: Accepted, sent: Sent) -> Done:
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


def superseded_by(sent: Sent) -> Done:
    """For the older events of a document whose newest was accepted."""
    return Done("superseded", gone=True) if sent.gone else SUPERSEDED


def braked(failure: Failure) -> Released:
    """For an event that would fail, while the brake for its fingerprint is on."""
    return Released("braked", HOLD_SECONDS, failure)


def view_away(failure: Failure) -> Released:
    """For an event whose document cannot be looked up now."""
    return Released(failure.reason, VIEW_PAUSE_SECONDS, failure)
