"""Removes finished events and audit rows by age when a person or a timer asks: the same steps as the daemon's, each
with its row in the audit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from outbox.errors import Conflict
from outbox.ops.audit import AuditDesk, AuditPruned
from outbox.policy import inputs
from outbox.policy.audit import LEAST_DAYS, Actor
from outbox.policy.inputs import AuditFilter
from outbox.policy.prune_steps import PrunePlace, PruneStep, next_rows

if TYPE_CHECKING:
    from outbox.store.audit import PostgresAudit

PAUSE_SECONDS: Final = 0.02
MOST_PREVIEWED_EVENTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class EventsPruned:
    """`due` rows are old enough; `kept` of them stay because versions still need them, `undecided` because asking
    took too long (`outbox migrate --by-entity` helps)."""

    before: datetime
    due: int
    removed: int
    kept: int
    undecided: int
    oldest: datetime | None
    newest: datetime | None
    dry_run: bool


@dataclass(frozen=True, slots=True)
class EventRetention:
    step: Callable[[datetime, PrunePlace, int, Actor], PruneStep | None]  # (before, place, rows, by)
    preview: Callable[[datetime, int], tuple[int, datetime | None, datetime | None]]  # (before, most)
    audit: PostgresAudit
    rows_a_step: int = 500
    pause: Callable[[float], None] = time.sleep

    def prune(self, older_than_days: float, actor: Actor, *, dry_run: bool = False) -> EventsPruned:
        """Done and discarded events that ended that long ago. A dry run counts up to a million and removes none."""
        if not isinstance(older_than_days, (int, float)) or not 0 <= older_than_days <= 36_500:
            raise inputs.BadRequest([("older_than_days", "must be from 0 to 36,500")])
        actor = inputs.actor(actor.name, actor.source, actor.role)
        before = self.audit.cutoff(older_than_days * 86_400)
        due, oldest, newest = self.preview(before, MOST_PREVIEWED_EVENTS)
        if dry_run or not due:
            return EventsPruned(before, due, 0, 0, 0, oldest, newest, dry_run)
        looked_at, removed, undecided = self._remove(before, actor)
        return EventsPruned(before, looked_at, removed, looked_at - removed, undecided, oldest, newest, False)

    def _remove(self, before: datetime, actor: Actor) -> tuple[int, int, int]:
        place, rows = PrunePlace(), self.rows_a_step
        looked_at = removed = undecided = 0
        while True:
            started = time.monotonic()
            step = self.step(before, place, rows, actor)
            if step is None:
                raise Conflict(f"another process prunes now; {removed:,} events were removed before")
            looked_at, removed = looked_at + step.looked_at, removed + step.removed
            undecided += step.skipped
            if step.looked_at < rows:
                return looked_at, removed, undecided
            place, rows = step.place, next_rows(rows, time.monotonic() - started)
            self.pause(PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class RetentionPass:
    """None: nothing of it was to be removed, because its time is not limited."""

    events: EventsPruned | None
    audit: AuditPruned | None

    @property
    def due(self) -> bool:
        return bool((self.events and self.events.due) or (self.audit and self.audit.removed))


@dataclass(frozen=True, slots=True)
class Retention:
    """`outbox prune`: both kinds at one go, each by its own age."""

    events: EventRetention
    audit: AuditDesk

    def run(
        self, events_days: float | None, audit_days: float | None, actor: Actor, *, dry_run: bool = False
    ) -> RetentionPass:
        """None keeps for ever. The audit's least age counts where less is set, as for the daemon. It is pruned first:
        another process that prunes events keeps nobody from it."""
        audit = None
        if audit_days is not None:
            audit = self.audit.prune(AuditFilter(), max(audit_days, LEAST_DAYS), actor, dry_run=dry_run)
        events = None if events_days is None else self.events.prune(events_days, actor, dry_run=dry_run)
        return RetentionPass(events, audit)
