"""Projects ONE batch: load -> write -> settle -> announce. Decisions are policy's; servers are behind ports.

Read this file first. What is rare has a module of its own: `large`, `newer_deletes`, `higher_version`, `overtaken`,
`locked_rows`, `fanout`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from outbox import fast_path, placing
from outbox.daemon import large, locked_rows, newer_deletes, overtaken
from outbox.daemon.batch import (
    NOTHING,
    Batch,
    BatchResult,
    Bodies,
    Delivery,
    Plain,
    Portion,
    Rows,
    Verdicts,
    documents_of,
    known_since,
)
from outbox.daemon.declarations import Declarations
from outbox.daemon.fanout import Fanouts
from outbox.daemon.gate import PauseGate
from outbox.daemon.higher_version import Again, HigherVersions
from outbox.daemon.lease import HoldUp, Leases, for_a_minute, while_leased
from outbox.daemon.places import placed
from outbox.daemon.view_trust import Lookups
from outbox.errors import DocumentsUnavailable, NothingSent
from outbox.facts import Announce, LeaseLost, Reclaimed, Warned
from outbox.fast_path import Sendable, all_written
from outbox.placing import PlaceBook
from outbox.policy.document import DOCUMENT_BYTES, Naming, Stack, coalesce
from outbox.policy.event import Event
from outbox.policy.outcome import Failure, FailureClass, Outcome, Stale
from outbox.policy.settle import Failed, Judge, Released
from outbox.ports import Claimed, Document, DocumentSource, EventStore, Settled, Sink, WriteReport

LEAST_DEADLINE_SECONDS: Final = 1.0  # a request with less would only end as a timeout
SETTLE_SECONDS: Final = 0.5  # of the lease, kept for the settle
MOST_ROUNDS: Final = 3  # of a batch whose lookups are overtaken each time
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
    naming: Naming
    judge: Judge
    lookups: Lookups
    higher: HigherVersions
    fanouts: Fanouts
    gate: PauseGate
    announce: Announce
    portion_bytes: int
    request_deadline_seconds: float
    report_write: Callable[[WriteReport], None]
    refresh_again: Callable[[Sequence[Event]], None]  # by a new event
    most_document_bytes: int = DOCUMENT_BYTES

    def project(self, claimed: Claimed, lane: int) -> BatchResult:
        """One batch, from its claim to its settlement. Every event gets exactly one verdict."""
        started = time.monotonic()
        with self.leases.holding(claimed) as holding:
            bodies = Bodies(self.store, self.documents, holding.clock, self.most_document_bytes)
            events, fanouts = documents_of(claimed.events)
            verdicts = Verdicts(claimed.events)
            batch = Batch(claimed, events, holding, bodies, verdicts, known_since(events, holding.started))
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
        sendable, refused = fast_path.sort_out(self.naming, batch.events)
        batch.sorted = self.declarations.sort(sendable.events)
        if refused or batch.sorted.wrong or batch.sorted.away is not None:
            sendable = self._without(sendable, refused, batch)
        if not sendable.events:
            return NOTHING
        if not batch.sorted.viewed:
            parts = fast_path.from_payloads(sendable, min(self.portion_bytes, self.most_document_bytes))
            if parts and not (batch.too_old(drawn=False) and newer_deletes.find(self.store, batch)):
                return Plain(sendable, parts, batch.bodies)
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
            return NOTHING
        parts = fast_path.from_view(sendable, found, bodies.drawn, self.portion_bytes)
        stacks = [] if parts else coalesce(sendable.addressed(), batch.sorted.viewed)
        good = self._check(stacks, found, sendable.events, batch)
        return Plain(sendable, parts, bodies, batch.sorted.viewed) if parts else Rows(map(bodies.delivery, good))

    def _deliveries(self, stacks: Sequence[Stack], batch: Batch) -> Rows:
        deliveries = Rows(map(batch.bodies.delivery, self._look_up(stacks, batch)))
        if batch.too_old(drawn=False) and (late := newer_deletes.own_upserts(deliveries)):
            newer_deletes.replaced(late, newer_deletes.find(self.store, batch))
        return deliveries

    def _look_up(self, stacks: Sequence[Stack], batch: Batch) -> Sequence[Stack]:
        """Documents from the view, all in one query. While it cannot be read they wait; the others go on."""
        asking = [stack for stack in stacks if stack.viewed]
        if not asking:
            return stacks
        try:
            heads = [stack.head for stack in asking]
            return self._check(stacks, batch.bodies.look_up(heads), heads, batch)
        except DocumentsUnavailable as error:
            batch.verdicts.give_all(self.lookups.away(error, [event for stack in asking for event in stack.events]))
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

    # write

    def _deliver(self, deliveries: Portion, batch: Batch) -> BatchResult:
        """Send portion after portion; a document refused for good makes room for its next older event."""
        result = BatchResult()
        while deliveries:
            again: list[Stack] = []
            for portion in deliveries.split(self.portion_bytes):
                result.hold_up = batch.holding.hold_up(LEAST_DEADLINE_SECONDS + SETTLE_SECONDS)
                if result.hold_up is not None:
                    return result
                deadline = min(self.request_deadline_seconds, batch.holding.remaining() - SETTLE_SECONDS)
                sent = self._not_paused(portion) if result.systemic else portion
                try:
                    written, systemic = self._send(sent, batch, deadline, again)
                except NothingSent as error:
                    result.hold_up = HoldUp("database", error.message)
                    return result
                result.learn(written, systemic)
                if result.unreachable is not None:
                    return result
            deliveries = self._deliveries(again, batch)
        return result

    def _send(self, portion: Portion, batch: Batch, deadline: float, again: list[Stack]) -> tuple[WriteReport, bool]:
        """True: a target refuses everything."""
        portion = self._with_large(portion, batch, again)
        report = self._write(portion, deadline)
        self.report_write(report)
        systemic = self._pause_targets(portion, report)
        deliveries, outcomes = portion.settle(report.outcomes, batch)
        if deliveries:
            self._judge(deliveries, outcomes, batch, deadline, again)
        return report, systemic

    def _write(self, portion: Portion, deadline: float) -> WriteReport:
        if looked_up := portion.looked_up_apart():
            documents = list(map(placed, looked_up))
            return placing.write(self.places, documents, lambda actions: self.sink.write(actions, deadline))
        return self.sink.write(portion.actions(), deadline)

    def _with_large(self, portion: Portion, batch: Batch, again: list[Stack]) -> Portion:
        """Large bodies, loaded now; what is too large, or turns out to be none, is not sent."""
        if not portion.has_large(self.most_document_bytes):
            return portion
        found = large.load(portion.deliveries(), batch.bodies)
        for delivery, failure in found.bad:
            if self._fail(delivery.stack, failure, batch):
                again.append(delivery.stack)
        if found.away is not None:
            waiting = [event for delivery in found.waiting for event in delivery.stack.events]
            batch.verdicts.give_all(self.lookups.away(found.away, waiting))
        return found.good

    def _not_paused(self, portion: Portion) -> Rows:
        """What is left for a target that this batch has found closed goes back unsent."""
        paused = self.gate.paused_targets()
        return Rows(d for d in portion.deliveries() if d.stack.address.index not in paused)

    def _pause_targets(self, portion: Portion, report: WriteReport) -> bool:
        """Systemic failures stop their target; the rows have been released already."""
        if all_written(report.outcomes):
            return False
        causes: dict[str, Failure] = {}
        for target, outcome in zip(portion.indexes(), report.outcomes, strict=True):
            if isinstance(outcome, Failure) and outcome.failure_class is FailureClass.SYSTEMIC:
                causes[target] = outcome
        for target, failure in causes.items():
            self.gate.pause(target, failure.reason, failure.error)
        return bool(causes)

    def _judge(
        self, deliveries: Rows, outcomes: Sequence[Outcome], batch: Batch, deadline: float, again: list[Stack]
    ) -> None:
        if batch.too_old(drawn=False) and newer_deletes.own_upserts(deliveries):
            # The rows may be someone else's by now, and done: nobody but us would check, dead connections or not.
            found = for_a_minute(partial(newer_deletes.find, self.store, batch))
            outcomes = newer_deletes.confirm(self.sink, deliveries, outcomes, found, deadline)
        judged = list(zip(deliveries, outcomes, strict=True))
        if batch.too_old(drawn=True):
            judged = overtaken.set_apart(judged, batch)
        stale = [(delivery, outcome) for delivery, outcome in judged if isinstance(outcome, Stale)]
        last_given = self.higher.last_given(stale, batch) if stale else 0
        for delivery, outcome in judged:
            met = self.higher.met(delivery, outcome, last_given, batch) if isinstance(outcome, Stale) else outcome
            if self._records(delivery, met, batch):
                again.append(delivery.stack)

    def _records(self, delivery: Delivery, met: Outcome | Released | Again, batch: Batch) -> bool:
        """True = another try in this batch: of an older event, or under a new number."""
        match met:
            case Failure():
                return self._fail(delivery.stack, met, batch)
            case Released():
                batch.verdicts.give_all((event, met) for event in delivery.stack.events)
            case Again():
                return True
            case _:
                batch.verdicts.give_all(self.judge.accepted(delivery.stack, met, delivery.sent()))
        return False

    # Versions that were drawn

    def _refresh_overtaken(self, batch: Batch) -> None:
        """Drawn, read and written once more, lease or not: the rows may be someone else's by now, and done, so nobody
        but us would do it; and it is right whoever does it."""
        for _ in range(MOST_ROUNDS):
            if not batch.overtaken:
                return
            stacks, batch.overtaken = batch.overtaken, []
            batch.late += [stack.head for stack in stacks]
            deliveries = for_a_minute(partial(self._deliveries, stacks, batch))
            for portion in deliveries.split(self.portion_bytes):
                for_a_minute(partial(self._send, portion, batch, self.request_deadline_seconds, []))

    def _owe(self, batch: Batch, settled: Settled) -> None:
        """What was written too late and could not be written once more, and whose rows are someone else's by now: only
        a new event brings it right."""
        if batch.late and (owed := overtaken.owed(batch, settled)):
            for_a_minute(partial(self.refresh_again, owed))

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
            settled = locked_rows.settle(self.store, self.announce, batch, settled)
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

    # announce

    def _announce_all(self, batch: Batch, lane: int, settled: Settled, took: float, settling: float) -> None:
        token, verdicts = batch.claimed.token, batch.verdicts
        unsettled = [*settled.lost, *settled.busy, *settled.refused]
        for fact in verdicts.failed_attempts(unsettled):
            self.announce(fact)
        if settled.lost:
            self.announce(LeaseLost(token, len(settled.lost), "settle"))
        self.announce(verdicts.summary(token, lane, unsettled, took, settling))
