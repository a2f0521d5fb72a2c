"""Removes what is old enough, every interval, one daemon at a time, in steps that the drain does not notice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from outbox.errors import OutboxError
from outbox.facts import Announce, Beat, DatabaseLost, PrunePassed, TablePruned, Warned
from outbox.policy.audit import Action, Actor, Entry, PruneOrder, Source
from outbox.policy.inputs import AuditFilter
from outbox.policy.prune_steps import PrunePlace, PruneStep, next_rows
from outbox.ports import Clock

if TYPE_CHECKING:
    from outbox.store.audit import PostgresAudit

PAUSE_SECONDS: Final = 0.05
BEAT_SECONDS: Final = 10.0
SUMMARY_SECONDS: Final = 3600.0  # a row per minute would bury what people did
AUDIT_ROWS_A_STEP: Final = 5_000  # each step adds a row that says what was removed
EVERYTHING: Final = AuditFilter()
# A pass that begins at the oldest row walks over all that must stay. Where these are many, it goes on behind the last
# pass instead, and begins at the oldest once per hour, for those that nobody needs any more.
MANY_KEPT: Final = 10_000
FROM_THE_OLDEST_SECONDS: Final = 3600.0


Step = Callable[[datetime, PrunePlace, int], PruneStep | None]  # (before, place, rows)
Forget = Callable[[timedelta, int], int]  # (age, most rows) -> removed


@dataclass(slots=True)
class Pruner:
    step: Step
    audit: PostgresAudit
    interval_seconds: float
    announce: Announce
    clock: Clock
    worker: str
    events_days: float = 0.0  # keeps them for ever, as 0 does for the audit
    audit_days: float = 30.0
    rows_a_step: int = 500
    others: dict[str, tuple[timedelta, Forget]] = field(default_factory=dict)  # table -> (age, how to forget)
    _removed: int = 0  # events that no audit row tells of yet. One is written at once, then one per hour
    _said_at: float | None = None
    _audit_pruned_at: float | None = None
    _warned: bool = False
    _place: PrunePlace = field(default_factory=PrunePlace)
    _kept: int = 0
    _began_at_oldest: float | None = None

    def run(self, stop: threading.Event) -> None:
        """A pass, then the rest of the interval; the wait is beaten through, because it may be long."""
        due = self.clock()
        while not stop.wait(min(max(due - self.clock(), 0.01), BEAT_SECONDS)):
            self.announce(Beat("pruner"))
            if self.clock() >= due:
                due = self.clock() + self.interval_seconds
                self.pass_once(stop)
        self._say(force=True)

    def pass_once(self, stop: threading.Event | None = None) -> None:
        stopped = stop or threading.Event()
        ends = self.clock() + self.interval_seconds / 2
        try:
            complete = self.events_days <= 0 or self._prune_events(ends, stopped)
            complete &= self.audit_days <= 0 or self._prune_audit(ends, stopped)
            for table, (age, forget) in self.others.items():
                complete &= self._forget(table, age, forget, ends, stopped)
            self._say()
            self.announce(PrunePassed(complete))
        except OutboxError as error:
            self.announce(DatabaseLost("pruner", error.detail))

    def _prune_events(self, ends: float, stop: threading.Event) -> bool:
        """Each of these says whether nothing more is due; what another daemon is at counts as due here."""
        began, rows = self.clock(), self.rows_a_step
        self._choose_place(began)
        before = self.audit.cutoff(self.events_days * 86_400)
        removed = attempts = skipped = 0
        nothing_left = False
        while not nothing_left and self._goes_on(ends, stop, began):
            started = self.clock()
            step = self.step(before, self._place, rows)
            if step is None:
                return False
            self._kept += step.looked_at - step.removed
            removed, attempts, skipped = removed + step.removed, attempts + step.attempts, skipped + step.skipped
            nothing_left = step.looked_at < rows
            self._place, rows = step.place, next_rows(rows, self.clock() - started)
        self._removed += removed
        took = self.clock() - began
        self.announce(TablePruned("search_outbox_events", removed, nothing_left, took))
        if attempts:
            self.announce(TablePruned("search_outbox_attempts", attempts, nothing_left, took))
        self._warn(skipped)
        return nothing_left

    def _choose_place(self, now: float) -> None:
        since = None if self._began_at_oldest is None else now - self._began_at_oldest
        if since is None or since >= FROM_THE_OLDEST_SECONDS or self._kept < MANY_KEPT:
            self._place, self._kept, self._began_at_oldest = PrunePlace(), 0, now

    def _warn(self, skipped: int) -> None:
        if skipped and not self._warned:
            remedy = "could not check in time whether finished rows are still needed: `outbox migrate --by-entity`"
            self.announce(Warned("prune.slow", remedy, {"kept": skipped}))
        self._warned = self._warned or skipped > 0

    def _prune_audit(self, ends: float, stop: threading.Event) -> bool:
        """Once an hour: the database writes a row for every step that removes something."""
        began, last = self.clock(), self._audit_pruned_at
        if last is not None and began - last < SUMMARY_SECONDS:
            return True
        before = self.audit.cutoff(self.audit_days * 86_400)
        order = PruneOrder(before, self.audit.head_id(), self._actor)
        removed = after = 0
        nothing_left = False
        while not nothing_left and self._goes_on(ends, stop, began):
            step = self.audit.prune_step(EVERYTHING, order, after, AUDIT_ROWS_A_STEP)
            removed, after = removed + step.removed, step.last
            nothing_left = step.removed < AUDIT_ROWS_A_STEP
        self._audit_pruned_at = began if nothing_left else None
        self.announce(TablePruned("search_outbox_audit", removed, nothing_left, self.clock() - began))
        return nothing_left

    @property
    def _actor(self) -> Actor:
        return Actor(self.worker[:120], Source.DAEMON)

    def _forget(self, table: str, age: timedelta, forget: Forget, ends: float, stop: threading.Event) -> bool:
        began, removed, last = self.clock(), 0, self.rows_a_step
        while last == self.rows_a_step and self._goes_on(ends, stop, began):
            last = forget(age, self.rows_a_step)
            removed += last
        if removed:
            self.announce(TablePruned(table, removed, last < self.rows_a_step, self.clock() - began))
        return last < self.rows_a_step

    def _goes_on(self, ends: float, stop: threading.Event, began: float) -> bool:
        """A short pause between steps, and never longer than half the interval; the first step always runs."""
        self.announce(Beat("pruner"))
        return not stop.wait(PAUSE_SECONDS) and (self.clock() < ends or self.clock() - began < 2 * PAUSE_SECONDS)

    def _say(self, *, force: bool = False) -> None:
        now, said_at = self.clock(), self._said_at
        if not self._removed or not (force or said_at is None or now - said_at >= SUMMARY_SECONDS):
            return
        try:
            detail = {"removed": self._removed}
            self.audit.write([Entry(Action.EVENTS_PRUNE_SUMMARY, self._actor, detail=detail)])
        except OutboxError as error:
            self.announce(DatabaseLost("pruner", error.detail))
            return
        self._removed, self._said_at = 0, now
