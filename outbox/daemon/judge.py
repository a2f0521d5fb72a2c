"""Turns outcomes into verdicts for stacks of events, with the brake in between. Pure decisions live in policy/."""

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from outbox.daemon.batch import Verdicts
from outbox.daemon.bodies import Bodies, Delivery
from outbox.daemon.gate import Gate
from outbox.errors import DocumentsUnavailable
from outbox.facts import Announce, BrakeOff, BrakeOn, SinkPaused, SinkResumed
from outbox.policy.brake import HOLD_SECONDS, WINDOW_SECONDS, Brake, LookupBrake
from outbox.policy.coalesce import Stack
from outbox.policy.document import refused
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import (
    WRITTEN,
    Code,
    DeadReason,
    Failure,
    FailureClass,
    Outcome,
    Reason,
    Stale,
    Written,
    all_written,
)
from outbox.policy.settle import DONE, SUPERSEDED, Done, Failed, Released, RetryPolicy, settle
from outbox.ports import Clock, Document, WriteReport

DOCUMENTS_PAUSE_SECONDS = 5.0
AHEAD_KEPT = 1_000
DOCUMENTS = "documents"
LOOKUPS = "lookups_without_a_row"  # the lookup brake's fingerprint, for people and for --let-fail
SUPERSEDED_GONE = Done("superseded", gone=True)
TOO_MANY_GONE = Failure(
    Reason.DOCUMENTS_UNAVAILABLE,
    "more than half of the lookups of the last minute found no row: nothing is deleted until the view is right",
)


@dataclass(slots=True)
class Judge:
    """One process's judgement; lanes share it, because the brake counts over all of them."""

    retry: RetryPolicy
    gate: Gate
    announce: Announce
    clock: Clock
    dice: Callable[[], float]
    brake: Brake = field(default_factory=Brake)
    lookups: LookupBrake = field(default_factory=LookupBrake)
    ahead: deque[tuple[Event, int]] = field(default_factory=lambda: deque(maxlen=AHEAD_KEPT))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _documents_away_since: float | None = None
    _lookups_held: int = 0
    _lookups_held_at: float = 0.0

    def refuse(self, event: Event, failure: Failure, verdicts: Verdicts) -> None:
        """An event that fails before anything is sent."""
        verdicts.give(event, self._braked(event, Failed(failure, DeadReason.NON_RETRYABLE)))

    def written(self, portion: Sequence[Delivery], verdicts: Verdicts) -> None:
        """The sink took all of it: what nearly every portion comes to."""
        verdicts.done(
            [d.stack.head for d in portion if d.tombstone is None and not d.as_delete and not d.stack.refused]
        )
        for delivery in portion:
            if delivery.stack.older:
                self._supersede_older(delivery, verdicts)
            if delivery.tombstone is not None or delivery.as_delete or delivery.stack.refused:
                verdicts.give(delivery.stack.head, self._accepted(delivery, WRITTEN))

    def delivery(self, delivery: Delivery, outcome: Outcome, verdicts: Verdicts) -> bool:
        """The sink's word for one document. True = refused for good, and an older event is to be sent."""
        if isinstance(outcome, Failure):
            return self.stack(delivery.stack, outcome, verdicts)
        verdicts.give(delivery.stack.head, self._accepted(delivery, outcome))
        self._supersede_older(delivery, verdicts)
        return False

    def _supersede_older(self, delivery: Delivery, verdicts: Verdicts) -> None:
        gone = delivery.drawn and delivery.as_delete
        verdicts.give_older(delivery.stack, SUPERSEDED_GONE if gone else SUPERSEDED)

    def _accepted(self, delivery: Delivery, outcome: Outcome) -> Done:
        if delivery.tombstone is not None:
            return SUPERSEDED
        if delivery.drawn:
            why = "superseded" if isinstance(outcome, Stale) else None
            return Done(why, gone=delivery.as_delete, drawn=delivery.version if delivery.stack.refused else None)
        if delivery.as_delete:
            return Done(as_delete=True)
        if isinstance(outcome, Written):
            return DONE
        return SUPERSEDED if isinstance(outcome, Stale) else Done(why="missing")

    def stack(self, stack: Stack, failure: Failure, verdicts: Verdicts) -> bool:
        """The newest event of a document did not get through. The cases for the older ones:

        the whole request failed   each is judged as if it had been in it
        refused for good           the next older one is sent in the same pass
        to be tried again, held    released: they are no longer the newest
        """
        verdict = self._braked(stack.head, settle(stack.head, failure, self.retry, self.dice))
        verdicts.give(stack.head, verdict)
        if failure.whole:
            for event in stack.older:
                verdicts.give(event, settle(event, failure, self.retry, self.dice))
            return False
        if isinstance(verdict, Failed):
            for event in stack.take_alike():
                verdicts.give(event, self._braked(event, settle(event, failure, self.retry, self.dice)))
            return stack.drop_head()
        verdicts.give_older(stack, Released("newer_is_retried"))
        return False

    def not_paused(self, portion: Iterable[Delivery]) -> list[Delivery]:
        """What is left for a target that this batch has found closed goes back unsent."""
        paused = self.gate.paused_targets()
        return [delivery for delivery in portion if delivery.stack.address.index not in paused]

    def pause_targets(self, portion: Iterable[Delivery], report: WriteReport) -> bool:
        """Systemic failures stop their target; the rows have been released already."""
        if all_written(report.outcomes):
            return False
        causes: dict[str, Failure] = {}
        for delivery, outcome in zip(portion, report.outcomes, strict=True):
            if isinstance(outcome, Failure) and outcome.failure_class is FailureClass.SYSTEMIC:
                causes[delivery.stack.address.index] = outcome
        for target, failure in causes.items():
            self.gate.pause(target, failure.reason, failure.error)
        return bool(causes)

    # Lookups

    def no_view(
        self, stacks: Sequence[Stack], asking: Sequence[Stack], bodies: Bodies, verdicts: Verdicts
    ) -> list[Stack]:
        failure = refused(
            "the payload is null and there is no view of documents; give a payload or create search_documents",
            Code.PAYLOAD_MISSING,
        )
        return self._without(stacks, {stack.head.id: failure for stack in asking}, bodies, verdicts)

    def looked_up(
        self, stacks: Sequence[Stack], found: Mapping[UUID, Document], bodies: Bodies, verdicts: Verdicts
    ) -> list[Stack]:
        """What payloads have made is not gone. An entity that has a delete says nothing about the view: the brake for
        lookups does not count it."""
        self._documents_back()
        if all(map(_is_there, found.values())):  # as nearly always
            with self._lock:
                self.lookups.admit(len(found), 0, self.clock())
            return list(stacks)
        asked = [stack for stack in stacks if stack.head.id in found and stack.head.op != DELETE]
        missing = {id for stack in asked if _is_gone(found[id := stack.head.id])}
        bad = {id: document.failure for id, document in found.items() if document.failure is not None}
        if missing and bodies.documents is not None:
            bad |= _not_gone(stacks, missing, bodies.documents.made_by_payloads)
            missing -= bad.keys()
        counted = [stack.head for stack in asked if not _has_delete(stack)]
        missing &= {event.id for event in counted}
        if missing:
            missing -= bodies.store.deleted([event for event in counted if event.id in missing])
        with self._lock:
            trusted = self.lookups.admit(len(counted), len(missing), self.clock())
        if not trusted and LOOKUPS not in self.brake.let_fail:
            stacks = self._hold_missing(stacks, missing, verdicts)
        return self._without(stacks, bad, bodies, verdicts)

    def _hold_missing(self, stacks: Sequence[Stack], missing: set[UUID], verdicts: Verdicts) -> list[Stack]:
        with self._lock:
            first = not self._lookups_held
            self._lookups_held, self._lookups_held_at = self._lookups_held + len(missing), self.clock()
        if first:
            self.announce(BrakeOn(LOOKUPS, TOO_MANY_GONE.reason, TOO_MANY_GONE.error))
        held = Released("lookups_braked", HOLD_SECONDS, TOO_MANY_GONE)
        for stack in stacks:
            if stack.head.id in missing:
                verdicts.give(stack.head, held)
                verdicts.give_older(stack, held)
        return [stack for stack in stacks if stack.head.id not in missing]

    def documents_unavailable(self, error: DocumentsUnavailable, asking: Sequence[Stack], verdicts: Verdicts) -> None:
        failure = Failure(Reason.DOCUMENTS_UNAVAILABLE, error.detail or error.message)
        with self._lock:
            first = self._documents_away_since is None
            self._documents_away_since = self._documents_away_since or self.clock()
        if first:
            self.announce(SinkPaused(DOCUMENTS, failure.reason, failure.error))
        released = Released(failure.reason, DOCUMENTS_PAUSE_SECONDS, failure)
        for stack in asking:
            verdicts.give(stack.head, released)
            verdicts.give_older(stack, released)

    def _documents_back(self) -> None:
        with self._lock:
            since, self._documents_away_since = self._documents_away_since, None
        if since is not None:
            self.announce(SinkResumed(DOCUMENTS, Reason.DOCUMENTS_UNAVAILABLE, self.clock() - since))

    def _without(
        self, stacks: Sequence[Stack], bad: Mapping[UUID, Failure], bodies: Bodies, verdicts: Verdicts
    ) -> list[Stack]:
        """Stacks that can be sent. A head whose lookup failed makes room for an older event that needs none."""
        good = []
        for stack in stacks:
            failure = bad.get(stack.head.id)
            while failure is not None and self.stack(stack, failure, verdicts):
                if not bodies.needs_lookup(stack.head):
                    failure = None
            if failure is None and verdicts.of(stack.head) is None:
                good.append(stack)
        return good

    # The brake

    def _braked(self, event: Event, verdict: object) -> Failed | Released:
        """Deterministic verdicts only: a row that has used up its attempts fails without it (lab 4)."""
        if not isinstance(verdict, Failed) or verdict.dead_reason is not DeadReason.NON_RETRYABLE:
            return verdict  # type: ignore[return-value]
        failure = verdict.failure
        fingerprint = failure.fingerprint or failure.reason
        with self._lock:
            was_on = self.brake.is_on(fingerprint)
            admitted = self.brake.admit(fingerprint, self.clock())
        if admitted:
            return verdict
        if not was_on:
            self.announce(BrakeOn(fingerprint, failure.reason, failure.error))
        return Released("braked", HOLD_SECONDS, failure)

    def tend_brake(self, let_fail: frozenset[str]) -> None:
        """Called every second: operators' words, and fingerprints that have come to rest."""
        with self._lock:
            self.brake.let_fail = let_fail
            released = self.brake.released(self.clock()) + self._lookups_released()
        for fingerprint, held in released:
            self.announce(BrakeOff(fingerprint, held))

    def _lookups_released(self) -> list[tuple[str, int]]:
        """Off like the others: nothing held for a hold and a window, or by an operator's word."""
        rested = self.clock() - self._lookups_held_at > HOLD_SECONDS + WINDOW_SECONDS
        if not self._lookups_held or not (rested or LOOKUPS in self.brake.let_fail):
            return []
        held, self._lookups_held = self._lookups_held, 0
        return [(LOOKUPS, held)]

    # Versions

    def too_high(self, delivery: Delivery, current: int, verdicts: Verdicts) -> bool:
        """A version that is not followed. True = an older event is to be sent."""
        error = f"the index holds version {current} of this document, above 2^62: rebuild it with `outbox rebuild`"
        return self.stack(delivery.stack, refused(error, Code.PRECONDITION_FAILED), verdicts)


def _has_delete(stack: Stack) -> bool:
    return any(event.op == DELETE for event in (stack.head, *stack.older))


def _is_gone(document: Document) -> bool:
    return document.size_bytes is None and document.failure is None


def _is_there(document: Document) -> bool:
    return document.size_bytes is not None and document.failure is None


def _not_gone(
    stacks: Sequence[Stack], missing: Container[UUID], made_by_payloads: Callable[[str], bool]
) -> dict[UUID, Failure]:
    """Events of types that the view does not have at all: what payloads have made is not deleted on its word."""
    events = [stack.head for stack in stacks if stack.head.id in missing]
    types = {kind for kind in {event.entity_type for event in events} if made_by_payloads(kind)}
    failure = refused(
        "the view has no entity of this type, whose documents come with their events' payloads: nothing was deleted; "
        "send a payload, or add the type to the view",
        Code.ENTITY_NOT_FOUND,
    )
    return {event.id: failure for event in events if event.entity_type in types}
