"""Projects ONE batch: load -> write -> settle -> announce. Decisions are policy's; servers are behind ports.

Read this file first.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from outbox import fast_path, placing
from outbox.daemon.batch import (
    IN_ORDER_SECONDS,
    Batch,
    BatchResult,
    Bodies,
    Delivery,
    Portion,
    Standing,
    Verdicts,
    documents_of,
)
from outbox.daemon.declarations import Declarations
from outbox.daemon.fanout import Fanouts
from outbox.daemon.gate import PauseGate
from outbox.daemon.judge import Judge
from outbox.daemon.lease import HoldUp, Leases, for_a_minute, until_unlocked, while_leased
from outbox.daemon.lookup_outcome import Lookups
from outbox.daemon.places import placed
from outbox.errors import DocumentsUnavailable, NothingSent
from outbox.facts import Announce, LeaseLost, Reclaimed, VersionAhead, VersionRaised, Warned
from outbox.fast_path import Plain, Sendable, all_written
from outbox.placing import PlaceBook
from outbox.policy.document import DOCUMENT_BYTES, Addressing, Stack, coalesce, refused
from outbox.policy.entity_type import UNDECLARED_DELETE
from outbox.policy.event import DELETE, HIGHEST_FOLLOWED, Event
from outbox.policy.outcome import WRITTEN, Code, Failure, FailureClass, Outcome, Stale, Written
from outbox.policy.settle import REFUSED_AHEAD, Failed
from outbox.ports import Claimed, Document, DocumentSource, EventStore, NewerDelete, Settled, Sink, WriteReport

LEAST_DEADLINE_SECONDS: Final = 1.0  # a request with less would only end as a timeout
SETTLE_SECONDS: Final = 0.5  # of the lease, kept for the settle
MOST_ROUNDS: Final = 3  # of a document that meets a higher version each time
AHEAD_KEPT: Final = 1_000
UNSENT: Final = HoldUp("unknown", "nothing of it was sent, and no event of it got a verdict")
ALL_LOST: Final = HoldUp("lease_lost", "all of its rows were taken by others before it was settled")


@dataclass(slots=True)
class Projector:
    store: EventStore
    documents: DocumentSource
    declarations: Declarations
    places: PlaceBook
    sink: Sink
    leases: Leases
    addressing: Addressing
    judge: Judge
    lookups: Lookups
    fanouts: Fanouts
    gate: PauseGate
    announce: Announce
    portion_bytes: int
    request_deadline_seconds: float
    report_write: Callable[[WriteReport], None]
    refresh_again: Callable[[Sequence[Event]], None]  # by a new event
    most_document_bytes: int = DOCUMENT_BYTES
    # Versions that an index holds and no event of their batch knows, for upkeep to check.
    ahead: deque[tuple[Event, int]] = field(default_factory=lambda: deque(maxlen=AHEAD_KEPT))

    def project(self, claimed: Claimed, lane: int) -> BatchResult:
        """One batch, from its claim to its settlement. Every event gets exactly one verdict."""
        started = time.monotonic()
        with self.leases.holding(claimed) as holding:
            bodies = Bodies(
                self.store, self.documents, self.portion_bytes, holding.clock, most_bytes=self.most_document_bytes
            )
            events, fanouts = documents_of(claimed.events)
            batch = Batch(claimed, events, holding, bodies, Verdicts(claimed.events), Standing.of(events))
            result = self._deliver(self._prepare(batch), batch)
            self._refresh_overtaken(batch)
            if fanouts:
                self.fanouts.expand(fanouts, batch)
            unsent = not result.sent and (batch.verdicts.none_moved if result.hold_up else batch.verdicts.none_given)
            batch.verdicts.release_rest()
            settling = time.monotonic()
            settled = self._settle(batch)
            self._take_back(batch, settled)
            self._owe(batch, settled)
        if unsent or (settled.lost and not settled.kept):
            result.no_progress = result.hold_up or (UNSENT if unsent else ALL_LOST)
        ended = time.monotonic()
        self._announce_all(batch, lane, settled, ended - started, ended - settling)
        return result

    # load

    def _prepare(self, batch: Batch) -> Portion:
        """Refuse what can never be sent, keep the newest event of each document, find its body."""
        sendable, refused = fast_path.sort_out(self.addressing, batch.events)
        batch.sorted = self.declarations.sort(sendable.events)
        if refused or batch.sorted.wrong or batch.sorted.away is not None:
            sendable = self._without(sendable, refused, batch)
        if not sendable.events:
            return []
        if not batch.sorted.viewed and not batch.standing.tried:
            plain = fast_path.from_payloads(sendable, min(self.portion_bytes, self.most_document_bytes))
            if plain is not None and (self._in_order(batch) or not self._newer_deletes(batch)):
                return plain
        elif batch.sorted.all_viewed and fast_path.is_lookup(sendable):
            return self._read(sendable, batch)
        return self._deliveries(coalesce(sendable.addressed(), batch.sorted.viewed), batch)

    def _without(self, sendable: Sendable, refused: Sequence[tuple[Event, Failure]], batch: Batch) -> Sendable:
        """Fails what can never be sent, and what is not of the sort that its type is declared as. What cannot be
        sorted yet waits for the view."""
        for event, failure in (*refused, *batch.sorted.wrong):
            batch.verdicts.give(event, self.judge.failure(event, failure))
        if batch.sorted.away is not None:
            batch.verdicts.give_all(self.lookups.away(batch.sorted.away, batch.sorted.waiting))
        unsent = {event.id for event, _ in batch.sorted.wrong} | {event.id for event in batch.sorted.waiting}
        return sendable.only([event.id not in unsent for event in sendable.events]) if unsent else sendable

    def _read(self, sendable: Sendable, batch: Batch) -> Portion:
        """All are in the view, as nearly every batch of lookups is: read first, and checked one by one only where
        that is not enough."""
        bodies = batch.bodies
        try:
            found = bodies.look_up(sendable.events)
        except DocumentsUnavailable as error:
            batch.verdicts.give_all(self.lookups.away(error, sendable.events))
            return []
        plain = bodies.plain_documents(sendable, found)
        stacks = [] if plain else coalesce(sendable.addressed(), batch.sorted.viewed)
        good = self._check(stacks, found, sendable.events, batch)
        return plain or [bodies.delivery(stack) for stack in good]

    def _deliveries(self, stacks: Sequence[Stack], batch: Batch) -> list[Delivery]:
        if not stacks:
            return []
        deliveries = [batch.bodies.delivery(stack) for stack in self._look_up(stacks, batch)]
        return self._guard_deletes(deliveries, batch)

    def _look_up(self, stacks: Sequence[Stack], batch: Batch) -> Sequence[Stack]:
        """Documents from the view, all in one query. While it cannot be read they wait; the others go on."""
        asking = [stack for stack in stacks if stack.viewed]
        if not asking:
            return stacks
        try:
            heads = [stack.head for stack in asking]
            return self._check(stacks, batch.bodies.look_up(heads), heads, batch)
        except DocumentsUnavailable as error:
            batch.verdicts.give_all(self.lookups.away(error, [e for s in asking for e in (s.head, *s.older)]))
            return [stack for stack in stacks if not stack.viewed]

    def _check(
        self, stacks: Sequence[Stack], found: Mapping[UUID, Document], events: Sequence[Event], batch: Batch
    ) -> list[Stack]:
        checked = self.lookups.check(stacks, found, events)
        batch.verdicts.give_all(checked.verdicts)
        for stack in checked.stacks:
            if failure := checked.bad.get(stack.head.id):
                self._fail(stack, failure, batch)
        return [stack for stack in checked.stacks if stack.head.id not in checked.bad]

    def _fail(self, stack: Stack, failure: Failure, batch: Batch) -> bool:
        """True = refused for good, and an older event is to be sent."""
        ruling = self.judge.failed(stack, failure)
        batch.verdicts.give_all(ruling.verdicts)
        return ruling.refused and stack.drop_head()

    def _guard_deletes(self, deliveries: list[Delivery], batch: Batch) -> list[Delivery]:
        """An upsert out of claim order must not bring back what a newer delete removed: Elasticsearch forgets deletes
        after gc_deletes, PostgreSQL does not. The delete goes out again instead, in case an earlier try was late."""
        late = [] if self._in_order(batch) else _own_upserts(deliveries)
        found = self._newer_deletes(batch) if late else {}
        for delivery in late:
            delivery.replace_by(found.get(delivery.stack.head.id))
        return deliveries

    def _newer_deletes(self, batch: Batch) -> Mapping[UUID, NewerDelete]:
        """Without those of this batch that were refused for good: they made room for the older event."""
        found = self.store.newer_deletes(batch.claimed.token, batch.holding.ids)
        refused = {_version_of(e) for e in batch.events if isinstance(batch.verdicts.of(e), Failed)}
        if not found or not refused:
            return found
        events = {event.id: event for event in batch.events}
        return {
            id: delete
            for id, delete in found.items()
            if _version_of(events[id]._replace(event_version=delete.event_version)) not in refused
        }

    def _in_order(self, batch: Batch) -> bool:
        return batch.standing.in_order(batch.holding.age())

    def _overdue(self, batch: Batch) -> bool:
        return batch.standing.overdue(batch.holding.age())

    def _late(self, portion: Plain, batch: Batch) -> bool:
        """Whether what was written has to be checked once more."""
        return batch.bodies.age() > IN_ORDER_SECONDS if portion.drawn else self._overdue(batch)

    # write

    def _deliver(self, deliveries: Portion, batch: Batch) -> BatchResult:
        """Send portion after portion; a document refused for good makes room for its next older event."""
        result = BatchResult()
        while deliveries:
            again: list[Stack] = []
            for portion in batch.bodies.portions(deliveries):
                result.hold_up = batch.holding.hold_up(LEAST_DEADLINE_SECONDS + SETTLE_SECONDS)
                if result.hold_up is not None:
                    return result
                deadline = min(self.request_deadline_seconds, batch.holding.remaining() - SETTLE_SECONDS)
                sent = self._not_paused(portion, batch) if result.systemic else portion
                try:
                    written = self._send(sent, batch, deadline, again)
                except NothingSent as error:
                    result.hold_up = HoldUp("database", error.message)
                    return result
                result.learn(written, self._pause_targets(sent, written))
                if result.unreachable is not None:
                    return result
            deliveries = self._deliveries(again, batch)
        return result

    def _send(self, portion: Portion, batch: Batch, deadline: float, again: list[Stack]) -> WriteReport:
        if not isinstance(portion, Plain):
            self._fill(portion, batch, again)
        report = self._write(portion, deadline)
        self.report_write(report)
        outcomes = report.outcomes
        if isinstance(portion, Plain) and not self._late(portion, batch):
            batch.verdicts.done(portion.written(outcomes))
            if all_written(outcomes):
                return report
            portion, outcomes = portion.rest(outcomes)
        self._judge(batch.bodies.each(portion), outcomes, batch, deadline, again)
        return report

    def _write(self, portion: Portion, deadline: float) -> WriteReport:
        if isinstance(portion, Plain):
            return self.sink.write(portion.actions(), deadline)
        documents = [placed(delivery) for delivery in portion]
        return placing.write(self.places, documents, lambda actions: self.sink.write(actions, deadline))

    def _fill(self, portion: list[Delivery], batch: Batch, again: list[Stack]) -> None:
        """Large bodies, loaded now; what is too large, or turns out to be none, is not sent."""
        self._leave_out(batch.bodies.too_large(portion), portion, batch, again)
        bad = batch.bodies.fill_payloads(portion) + self._large_documents(portion, batch)
        self._leave_out(bad, portion, batch, again)

    def _leave_out(
        self, bad: Sequence[tuple[Delivery, Failure]], portion: list[Delivery], batch: Batch, again: list[Stack]
    ) -> None:
        for delivery, failure in bad:
            portion.remove(delivery)
            if self._fail(delivery.stack, failure, batch):
                again.append(delivery.stack)

    def _not_paused(self, portion: Portion, batch: Batch) -> list[Delivery]:
        """What is left for a target that this batch has found closed goes back unsent."""
        paused = self.gate.paused_targets()
        return [d for d in batch.bodies.each(portion) if d.stack.address.index not in paused]

    def _pause_targets(self, portion: Portion, report: WriteReport) -> bool:
        """Systemic failures stop their target; the rows have been released already."""
        if all_written(report.outcomes):
            return False
        causes: dict[str, Failure] = {}
        for target, outcome in zip(_targets(portion), report.outcomes, strict=True):
            if isinstance(outcome, Failure) and outcome.failure_class is FailureClass.SYSTEMIC:
                causes[target] = outcome
        for target, failure in causes.items():
            self.gate.pause(target, failure.reason, failure.error)
        return bool(causes)

    def _judge(
        self, portion: list[Delivery], outcomes: Sequence[Outcome], batch: Batch, deadline: float, again: list[Stack]
    ) -> None:
        outcomes = self._confirm(portion, outcomes, batch, deadline)
        for delivery in portion:
            delivery.body = None  # sent: its memory is free before the next portion is loaded
        if self._outlived(portion, batch):
            portion, outcomes = _without_drawn(portion, outcomes, batch)
        if all_written(outcomes):
            self._record_written(portion, batch.verdicts)
            return
        last_version = self._last_version(portion, outcomes, batch)
        for delivery, outcome in zip(portion, outcomes, strict=True):
            if isinstance(outcome, Stale) and self._met_higher(delivery, outcome.current, last_version, batch, again):
                continue
            if not isinstance(outcome, Failure):
                batch.verdicts.give_all(self.judge.accepted(delivery, outcome))
            elif self._fail(delivery.stack, outcome, batch):
                again.append(delivery.stack)

    def _record_written(self, portion: Sequence[Delivery], verdicts: Verdicts) -> None:
        """The sink took all of it: what nearly every portion comes to."""
        plain: list[Event] = []
        for delivery in portion:
            if delivery.is_plain:
                plain.append(delivery.stack.head)
            else:
                verdicts.give_all(self.judge.accepted(delivery, WRITTEN))
        verdicts.done(plain)

    # Versions that were drawn

    def _outlived(self, portion: Sequence[Delivery], batch: Batch) -> bool:
        """Whether so much time has gone by since the read that a newer delete may be forgotten by Elasticsearch: then
        what was written late may have brought back what is gone."""
        return any(d.drawn for d in portion) and batch.bodies.age() > IN_ORDER_SECONDS

    def _refresh_overtaken(self, batch: Batch) -> None:
        """Drawn, read and written once more, lease or not: the rows may be someone else's by now, and done, so nobody
        but us would do it; and it is right whoever does it."""
        for _ in range(MOST_ROUNDS):
            if not batch.overtaken:
                return
            stacks, batch.overtaken = batch.overtaken, []
            batch.late += [stack.head for stack in stacks]
            deliveries = for_a_minute(partial(self._deliveries, stacks, batch))
            for portion in batch.bodies.portions(deliveries):
                for_a_minute(partial(self._send, portion, batch, self.request_deadline_seconds, []))

    def _owe(self, batch: Batch, settled: Settled) -> None:
        """What was written too late and could not be written once more, and whose rows are someone else's by now: only
        a new event brings it right."""
        lost = set(settled.lost) if batch.late else set()
        owed = [event for event in batch.late if event.id in lost and not batch.verdicts.is_done(event)]
        if owed:
            for_a_minute(partial(self.refresh_again, owed))

    def _last_version(self, portion: Sequence[Delivery], outcomes: Sequence[Outcome], batch: Batch) -> int:
        """Asked when a refusal for a higher version has just arrived: a moment later the sequence may have gone past
        a version that it had never given out."""
        higher = max((_above(d, o) for d, o in zip(portion, outcomes, strict=True)), default=0)
        return while_leased(self.store.last_version, batch.holding) if higher else 0

    def _met_higher(
        self, delivery: Delivery, current: int | None, last_version: int, batch: Batch, again: list[Stack]
    ) -> bool:
        """The index holds a higher version. True = dealt with. The cases:

        not drawn      superseded; noted for upkeep where no event of its batch explains that version. A delete of a
                       type that nobody has declared fails
        drawn          done again: a colleague may have written it, or raised the sequence, before this change
        drawn, again   refused under a number that was drawn after the first refusal: superseded by a later read
        drawn, ahead   the sequence never gave that version out: raised, and done again; never settled as done
        """
        is_ahead = current is not None and current > max(last_version, delivery.version)
        if not delivery.drawn:
            return self._met_unread(delivery, current, batch, is_ahead=is_ahead)
        stack = delivery.stack
        stack.refused += 1
        if is_ahead and current is not None:
            if current > HIGHEST_FOLLOWED:
                self._fail(stack, _too_high(current), batch)
                return True
            self._move_on(delivery, current, batch)
            if stack.refused >= MOST_ROUNDS:
                batch.verdicts.give_all((event, REFUSED_AHEAD) for event in (stack.head, *stack.older))
                return True
        elif stack.refused > 1:
            return False
        again.append(stack)
        return True

    def _met_unread(self, delivery: Delivery, current: int | None, batch: Batch, *, is_ahead: bool) -> bool:
        head, older = delivery.stack.head, delivery.stack.older
        if head.entity_type in batch.sorted.undeclared:
            self._fail(delivery.stack, UNDECLARED_DELETE, batch)
            return True
        explained = current is None or current in {event.event_version for event in (head, *older)}
        if is_ahead or (self.store.has_all_events and not explained):
            self.ahead.append((head, current or 0))
        return False

    def _move_on(self, delivery: Delivery, current: int, batch: Batch) -> None:
        event = delivery.stack.head
        self.announce(VersionAhead(event.id, event.entity_type, event.entity_id, delivery.version, current))
        was = while_leased(lambda: self.store.raise_version(current), batch.holding)
        if was is not None:
            self.announce(VersionRaised(was, current))

    def _large_documents(self, portion: list[Delivery], batch: Batch) -> list[tuple[Delivery, Failure]]:
        try:
            return batch.bodies.fill_documents(portion)
        except DocumentsUnavailable as error:
            absent = [d for d in portion if d.drawn and d.body is None and d.size_bytes]
            batch.verdicts.give_all(
                self.lookups.away(error, [e for d in absent for e in (d.stack.head, *d.stack.older)])
            )
            portion[:] = [d for d in portion if d not in absent]
            return []

    def _confirm(
        self, portion: Sequence[Delivery], outcomes: Sequence[Outcome], batch: Batch, deadline: float
    ) -> Sequence[Outcome]:
        """The second check for newer deletes: one that was settled while our upsert was on its way is sent again.
        The rows may be someone else's by now, and done: nobody but us would check, dead connections or not."""
        if not self._overdue(batch) or all(d.tombstone is not None for d in _own_upserts(portion)):
            return outcomes
        found = for_a_minute(lambda: self._newer_deletes(batch))
        overtaken = [
            place
            for place, delivery in enumerate(portion)
            if delivery.tombstone is None
            and not delivery.drawn
            and isinstance(outcomes[place], Written)
            and delivery.replace_by(found.get(delivery.stack.head.id))
        ]
        if not overtaken:
            return outcomes
        second = self.sink.write([portion[place].action() for place in overtaken], deadline)
        after = list(outcomes)
        for place, outcome in zip(overtaken, second.outcomes, strict=True):
            after[place] = outcome
        return after

    # settle

    def _settle(self, batch: Batch) -> Settled:
        """All in one statement, as nearly always. Rows that someone has locked get a moment; they and those whose
        verdict cannot be written hold up nobody else."""
        token, holding, drawn = batch.claimed.token, batch.holding, batch.bodies.first_drawn
        settlements, undeclared = batch.verdicts.settlements(), batch.sorted.undeclared
        if while_leased(lambda: self.declarations.declared_meanwhile(undeclared), holding):
            settled = Settled(0, (), changed=True)
        else:
            settled = while_leased(lambda: self.store.settle(token, settlements, drawn), holding)
        if settled.changed:
            while_leased(lambda: self.store.release(token), holding)
            batch.verdicts.forget()
        if settled.busy:
            settled = self._settle_busy(batch, settled)
        for id, error in settled.refused.items():
            taken = while_leased(partial(self.store.abandon, token, [id], error), holding)
            self.announce(Warned("settle.refused", error, {"event_id": str(id)}))
            self.announce(Reclaimed(taken.rows, taken.abandoned, taken.failed))
        return settled

    def _take_back(self, batch: Batch, settled: Settled) -> None:
        """The declaration of a type whose first events were all refused: they say nothing about the next ones."""
        events = [event for event in batch.events if event.entity_type in batch.sorted.first]
        good = {event.entity_type for event in events if not isinstance(batch.verdicts.of(event), Failed)}
        self.declarations.take_back(() if settled.changed else batch.sorted.first - good)

    def _settle_busy(self, batch: Batch, settled: Settled) -> Settled:
        token, holding, drawn = batch.claimed.token, batch.holding, batch.bodies.first_drawn
        verdicts = dict(batch.verdicts.settlements())

        def again() -> bool:
            nonlocal settled
            waiting = [(id, verdicts[id]) for id in settled.busy]
            now = while_leased(lambda: self.store.settle(token, waiting, drawn, part=True), holding)
            settled = Settled(
                settled.kept + now.kept, [*settled.lost, *now.lost], now.busy, {**settled.refused, **now.refused}
            )
            return not now.busy

        until_unlocked(again, holding)
        if settled.busy:
            message = f"another session has locked {len(settled.busy)} events; they are sent again after their lease"
            self.announce(Warned("settle.locked", message, {"event_id": str(settled.busy[0])}))
        return settled

    # announce

    def _announce_all(self, batch: Batch, lane: int, settled: Settled, took: float, settling: float) -> None:
        token, verdicts = batch.claimed.token, batch.verdicts
        unsettled = [*settled.lost, *settled.busy, *settled.refused]
        for fact in verdicts.failed_attempts(unsettled):
            self.announce(fact)
        if settled.lost:
            self.announce(LeaseLost(token, len(settled.lost), "settle"))
        self.announce(verdicts.summary(token, lane, unsettled, took, settling))


def _targets(portion: Portion) -> Sequence[str]:
    return portion.sendable.indexes if isinstance(portion, Plain) else [d.stack.address.index for d in portion]


def _own_upserts(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Those under their events' own versions: what was drawn is right whatever was deleted before."""
    return [d for d in deliveries if not d.drawn and d.stack.head.op != DELETE]


def _without_drawn(
    portion: Sequence[Delivery], outcomes: Sequence[Outcome], batch: Batch
) -> tuple[list[Delivery], list[Outcome]]:
    """What needs no second check, with its outcomes; the stacks of the rest are overtaken. What failed is tried again
    or failed as ever, while its rows are ours; it may have been written all the same, so it may be owed."""
    kept: list[tuple[Delivery, Outcome]] = []
    for delivery, outcome in zip(portion, outcomes, strict=True):
        if delivery.drawn and not isinstance(outcome, Failure):
            batch.overtaken.append(delivery.stack)
            continue
        kept.append((delivery, outcome))
        if delivery.drawn:
            batch.late.append(delivery.stack.head)
    return [delivery for delivery, _ in kept], [outcome for _, outcome in kept]


def _above(delivery: Delivery, outcome: Outcome) -> int:
    """The version that the index holds, if it is higher than what was sent; else 0."""
    current = outcome.current if isinstance(outcome, Stale) else None
    return current if current is not None and current > delivery.version else 0


def _too_high(current: int) -> Failure:
    error = f"the index holds version {current} of this document, above 2^62: rebuild it with `outbox rebuild`"
    return refused(error, Code.PRECONDITION_FAILED)


def _version_of(event: Event) -> tuple[str, str, int]:
    return event.entity_type, event.entity_id, event.event_version
