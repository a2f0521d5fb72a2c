"""Projects ONE batch: load -> write -> settle -> announce. Decisions are policy's; servers are behind ports.

Read this file first.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outbox.daemon.batch import Verdicts
from outbox.daemon.bodies import Bodies, Delivery
from outbox.daemon.judge import Judge
from outbox.daemon.landing import land
from outbox.daemon.lease import Holding, Leases
from outbox.daemon.order import Horizon
from outbox.errors import DocumentsUnavailable
from outbox.facts import Announce, LeaseLost
from outbox.policy.coalesce import Stack, coalesce
from outbox.policy.document import Addressing
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Failure, Outcome, Written
from outbox.ports import Claimed, DocumentSource, EventStore, Settled, Sink, WriteReport


@dataclass(frozen=True, slots=True)
class Report:
    """How the batch went, for the lane's next step."""

    unreachable: Failure | None = None
    systemic: bool = False


@dataclass(slots=True)
class Projector:
    store: EventStore
    documents: DocumentSource | None
    sink: Sink
    leases: Leases
    addressing: Addressing
    judge: Judge
    horizon: Horizon
    announce: Announce
    portion_bytes: int
    request_deadline_seconds: float
    report_write: Callable[[WriteReport], None]

    def project(self, claimed: Claimed, lane: int) -> Report:
        """One batch, from its claim to its settlement. Every event gets exactly one verdict."""
        started = time.monotonic()
        self.horizon.saw(claimed.events)
        verdicts = Verdicts(claimed.events)
        with self.leases.holding(claimed) as holding:
            deliveries, bodies = self._prepare(claimed.events, verdicts)
            report = self._deliver(deliveries, bodies, verdicts, holding)
            verdicts.release_rest("not_sent")
            settle_started = time.monotonic()
            settled = land(lambda: self.store.settle(claimed.token, verdicts.settlements()), holding)
        ended = time.monotonic()
        self._announce_all(claimed, lane, verdicts, settled, ended - started, ended - settle_started)
        return report

    # load

    def _prepare(self, events: Sequence[Event], verdicts: Verdicts) -> tuple[list[Delivery], Bodies]:
        """Refuse what can never be sent, keep the newest event of each document, find its body."""
        sendable = []
        for event in events:
            failure = self.addressing.refusal(event)
            if failure is None:
                sendable.append((self.addressing.address(event), event))
            else:
                self.judge.refuse(event, failure, verdicts)
        bodies = Bodies(self.store, self.documents, self.portion_bytes)
        return self._deliveries(coalesce(sendable), bodies, verdicts), bodies

    def _deliveries(self, stacks: Sequence[Stack], bodies: Bodies, verdicts: Verdicts) -> list[Delivery]:
        known = self._look_up(stacks, bodies, verdicts)
        deliveries = [bodies.delivery(stack) for stack in known]
        return self._guard_deletes(deliveries)

    def _look_up(self, stacks: Sequence[Stack], bodies: Bodies, verdicts: Verdicts) -> list[Stack]:
        """Upserts without a payload, all in one query. Without the view they fail; the others go on either way."""
        asking = [stack for stack in stacks if bodies.needs_lookup(stack.head)]
        if not asking:
            return list(stacks)
        if self.documents is None:
            return self.judge.no_view(stacks, asking, bodies, verdicts)
        try:
            found = bodies.look_up([stack.head for stack in asking])
        except DocumentsUnavailable as error:
            self.judge.documents_unavailable(error, asking, verdicts)
            return [stack for stack in stacks if not bodies.needs_lookup(stack.head)]
        return self.judge.looked_up(stacks, found, bodies, verdicts)

    def _guard_deletes(self, deliveries: list[Delivery]) -> list[Delivery]:
        """An upsert out of claim order must not bring back what a newer delete removed: Elasticsearch forgets deletes
        after gc_deletes, PostgreSQL does not. The delete goes out again instead, in case an earlier try was late."""
        upserts = {d.stack.head.id: d for d in deliveries if d.stack.head.op != DELETE}
        late = self.horizon.out_of_order([d.stack.head for d in upserts.values()])
        for id, tombstone in self.store.newer_deletes(late).items():
            upserts[id].tombstone = tombstone
            upserts[id].body = None
            upserts[id].size_bytes = 0
        return deliveries

    # write

    def _deliver(self, deliveries: list[Delivery], bodies: Bodies, verdicts: Verdicts, holding: Holding) -> Report:
        """Send portion after portion; a document refused for good makes room for its next older event."""
        systemic = False
        while deliveries:
            again: list[Stack] = []
            for portion in bodies.portions(deliveries):
                deadline = min(self.request_deadline_seconds, holding.remaining() - 0.5)
                if deadline < 1.0 or holding.half_spent() or holding.lost:
                    return Report(systemic=systemic)
                report = self._send(portion, bodies, verdicts, deadline, again)
                systemic = self.judge.pause_targets(portion, report) or systemic
                if report.unreachable is not None:
                    return Report(report.unreachable, systemic)
            deliveries = self._deliveries(again, bodies, verdicts)
        return Report(systemic=systemic)

    def _send(
        self, portion: list[Delivery], bodies: Bodies, verdicts: Verdicts, deadline: float, again: list[Stack]
    ) -> WriteReport:
        for id, failure in bodies.fill(portion).items():
            stack = next(d.stack for d in portion if d.stack.head.id == id)
            portion[:] = [d for d in portion if d.stack is not stack]
            if self.judge.stack(stack, failure, verdicts):
                again.append(stack)
        report = self.sink.write([delivery.action() for delivery in portion], deadline)
        self.report_write(report)
        outcomes = self._confirm(portion, report, deadline)
        for delivery, outcome in zip(portion, outcomes, strict=True):
            if self.judge.delivery(delivery, outcome, verdicts):
                again.append(delivery.stack)
            delivery.body = None  # sent: its memory is free before the next portion is loaded
        return report

    def _confirm(self, portion: Sequence[Delivery], report: WriteReport, deadline: float) -> list[Outcome]:
        """The second look at newer deletes: one that was settled while our upsert was on its way is sent again."""
        outcomes = list(report.outcomes)
        written = {
            d.stack.head.id: i
            for i, d in enumerate(portion)
            if isinstance(outcomes[i], Written) and d.stack.head.op != DELETE and d.tombstone is None
        }
        late = self.horizon.out_of_order([portion[i].stack.head for i in written.values()])
        found = self.store.newer_deletes(late)
        if not found:
            return outcomes
        positions = [written[id] for id in found]
        for id, tombstone in found.items():
            portion[written[id]].tombstone = tombstone
        second = self.sink.write([portion[i].action() for i in positions], deadline)
        for position, outcome in zip(positions, second.outcomes, strict=True):
            outcomes[position] = outcome
        return outcomes

    # announce

    def _announce_all(
        self, claimed: Claimed, lane: int, verdicts: Verdicts, settled: Settled, took: float, settling: float
    ) -> None:
        for fact in verdicts.failed_attempts(settled.lost):
            self.announce(fact)
        if settled.lost:
            self.announce(LeaseLost(claimed.token, len(settled.lost), "settle"))
        self.announce(verdicts.summary(claimed.token, lane, settled.lost, took, settling))


def dice() -> float:
    """Jitter needs no secrecy."""
    return random.random()  # noqa: S311
