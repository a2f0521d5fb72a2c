"""Writes a rebuild's documents to its second index too. Knows from the database, every second, whether there is one.

Order matters twice. What is to be mirrored is known here before the database records that it is (`confirm`), so who
waits for the confirmation may rely on every later claim. And knowledge grows stale: a process that was stopped for a
while asks again before it writes, because a rebuild no longer waits for a worker that has stopped beating.

The records of a stream can be read again, so they need not wait for PostgreSQL: `StreamTarget` writes by what was known
last. What was written in that time counts only when PostgreSQL has answered that nothing has changed; if something has,
it is read and written again. And a change is confirmed only between their requests: they have no lease that a rebuild
could see and wait for.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from outbox.errors import NothingSent, OutboxError
from outbox.facts import Announce, Warned
from outbox.policy.outcome import Failure, FailureClass, Outcome, Reason
from outbox.ports import BulkAction, Clock, Mirroring, Refusal, Sink, WriteReport

if TYPE_CHECKING:
    from outbox.reindex.tables import PostgresMirrors

STALE_SECONDS: Final = 2.5  # below the three seconds of silence after which a rebuild may think a worker gone
PATIENCE_SECONDS: Final = 60.0  # a second index that takes nothing for so long ends the rebuild
LEAST_DEADLINE_SECONDS: Final = 1.0
MOST_REFUSALS: Final = 100


@dataclass(slots=True)
class SecondTarget:
    """A sink before the sink. Without a rebuild it costs one reading of the clock per request."""

    sink: Sink
    rebuilds: "PostgresMirrors"
    announce: Announce
    clock: Clock  # the boot clock: knowledge grows stale while the machine sleeps
    _mirroring: Mirroring | None = None
    _known_at: float = float("-inf")
    _confirmed: int = 0
    _failing_since: float | None = None
    _refusals: list[Refusal] = field(default_factory=list)
    _refused: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    on_change_after_silence: Callable[[], None] = lambda: None
    _without_asking: Counter[int] = field(default_factory=Counter)  # requests of a stream on their way, by revision
    _revision: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock)  # held for no query, as the other one is

    def probe(self, target: str) -> Failure | None:
        return self.sink.probe(target)

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        started = self.clock()
        if started - self._known_at > STALE_SECONDS:
            self._catch_up()
        return self._write(actions, deadline_seconds, started, self._mirroring)

    def write_as_known(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        """For what can be read again: without asking, however long ago it was asked."""
        with self._counting:
            mirroring, revision = self._mirroring, self._revision
            self._without_asking[revision] += 1
        try:
            return self._write(actions, deadline_seconds, self.clock(), mirroring)
        finally:
            with self._counting:
                self._without_asking[revision] -= 1

    def is_heard(self) -> bool:
        """Whether PostgreSQL has said lately what is to be mirrored."""
        return self.clock() - self._known_at <= STALE_SECONDS

    def _write(
        self, actions: Sequence[BulkAction], deadline_seconds: float, started: float, mirroring: Mirroring | None
    ) -> WriteReport:
        report = self.sink.write(actions, deadline_seconds)
        if mirroring is None:
            return report
        left = max(LEAST_DEADLINE_SECONDS, deadline_seconds - (self.clock() - started))
        return self._mirror(mirroring, actions, report, left)

    # Once per second

    def tend(self) -> None:
        self.refresh()
        self._report_refusals()

    def refresh(self) -> None:
        """One at a time: an older answer must not overtake a newer one."""
        with self._lock:
            asked_at = self.clock()
            found = self.rebuilds.mirroring()
            revision = 0 if found is None else found.revision
            if revision != self._revision and asked_at - self._known_at > STALE_SECONDS:
                self.on_change_after_silence()  # before anything is heard again, or it would be committed
            with self._counting:
                self._mirroring = found if found is not None and found.indexes else None
                self._revision = revision
            self._known_at = asked_at
            if revision != self._confirmed and not self._older_on_their_way():
                self.rebuilds.confirm(revision)
                self._confirmed = revision
                self._failing_since = None

    def _older_on_their_way(self) -> bool:
        """Requests of a stream that began before this revision was known. They are asked for again in a second."""
        with self._counting:
            return any(count for revision, count in self._without_asking.items() if revision != self._revision)

    def _catch_up(self) -> None:
        """Raises NothingSent: a fault of PostgreSQL, or a pool that is busy, is none of Elasticsearch's."""
        try:
            self.refresh()
        except OutboxError as error:
            raise NothingSent(error.detail) from error

    # The second write

    def _mirror(
        self, mirroring: Mirroring, actions: Sequence[BulkAction], report: WriteReport, deadline_seconds: float
    ) -> WriteReport:
        """What the target has accepted goes to the others too; what it has not comes back anyway."""
        places = [
            place
            for place, action in enumerate(actions)
            if action.index == mirroring.target and not isinstance(report.outcomes[place], Failure)
        ]
        copies = [(place, actions[place]._replace(index=index)) for index in mirroring.indexes for place in places]
        if not copies:
            return report
        second = self.sink.write([action for _, action in copies], deadline_seconds)
        outcomes = list(report.outcomes)
        for (place, action), outcome in zip(copies, second.outcomes, strict=True):
            if isinstance(outcome, Failure) and (verdict := self._judge(mirroring, action, outcome)):
                outcomes[place] = verdict
        if any(not isinstance(outcome, Failure) for outcome in second.outcomes):
            self._failing_since = None
        return WriteReport(outcomes, report.unreachable, report.pressure or second.pressure)

    def _judge(self, mirroring: Mirroring, action: BulkAction, failure: Failure) -> Outcome | None:
        """What a failure of the second index means for an event whose target has accepted. None = nothing:

        deterministic   noted in the rebuild; the event is done
        systemic        the rebuild ends; production continues
        transient       the event is tried again, for a minute at most; then the rebuild ends
        """
        if failure.failure_class is FailureClass.DETERMINISTIC:
            self._note(Refusal(action.index, action.id, failure.error))
            return None
        if failure.failure_class is FailureClass.SYSTEMIC or self._out_of_patience():
            if self._give_up(mirroring, f"{action.index}: {failure.error}"):
                return None
            failure = replace(failure, reason=Reason.UNKNOWN)
        return replace(failure, error=f"second index {action.index}: {failure.error}", whole=False, second=True)

    def _out_of_patience(self) -> bool:
        now = self.clock()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since > PATIENCE_SECONDS

    def _give_up(self, mirroring: Mirroring, why: str) -> bool:
        """False: the event must come again, because the database is down or other indexes are mirrored to by now."""
        if self._mirroring is None:
            return True
        if self._mirroring.revision != mirroring.revision:
            return False
        try:
            first = self.rebuilds.give_up(mirroring, why)
            self.refresh()
        except OutboxError:
            return False
        if first:
            remedy = "production goes on without it; see `outbox rebuild --status`"
            self.announce(Warned("rebuild.broken", f"{why}; {remedy}", {"rebuild": mirroring.rebuild}))
        return first or self._mirroring is None

    # What the new mapping refuses

    def _note(self, refusal: Refusal) -> None:
        with self._lock:
            self._refused += 1
            if len(self._refusals) < MOST_REFUSALS:
                self._refusals.append(refusal)

    def _report_refusals(self) -> None:
        with self._lock:
            refusals, count = self._refusals, self._refused
            mirroring = self._mirroring
            self._refusals, self._refused = [], 0
        if count and mirroring is not None:
            self.rebuilds.refused(mirroring.rebuild, refusals, count)


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """The same sink for records that can be read again."""

    second: SecondTarget

    def probe(self, target: str) -> Failure | None:
        return self.second.probe(target)

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        return self.second.write_as_known(actions, deadline_seconds)
