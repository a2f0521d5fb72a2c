"""What daemons do for people's acts: go on with replays whose creator is gone, follow all, settle them, and tell of
discards. Creates none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from outbox.errors import OutboxError
from outbox.facts import (
    Announce,
    Beat,
    DatabaseLost,
    EventDiscarded,
    EventsFlushed,
    EventsReplayed,
    ReplaySettled,
    Warned,
)
from outbox.policy.redact import cut
from outbox.policy.replay import DEFAULT_RATE, Dispatched, ReplayBatch, ReplayLease, ReplayPace
from outbox.ports import Clock

if TYPE_CHECKING:
    from outbox.config.service import ReplaySettings
    from outbox.store.replays import PostgresReplays

INTERVAL_SECONDS: Final = 1.0
MOST_TOLD: Final = 50
MOST_DISCARDS_TOLD: Final = 5_000  # a flush is one line, so these are no flood


@dataclass(slots=True)
class Held:
    lease: ReplayLease
    batch: ReplayBatch
    pace: ReplayPace


@dataclass(slots=True)
class ReplayChore:
    store: PostgresReplays
    discarded: Callable[[int], Sequence[EventDiscarded]]  # since the last call, so many at most
    limits: ReplaySettings  # of one pass
    announce: Announce
    clock: Clock
    _held: dict[UUID, Held] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(INTERVAL_SECONDS):
            self.pass_once()
        self.let_go()

    def pass_once(self) -> None:
        """Dispatch, check, settle, each within its limit. A lost database never fails a batch: it is tried again."""
        self.announce(Beat("replays"))
        try:
            self._take_over()
            self._held = {id: held for id, held in self._held.items() if self._dispatch(held)}
            self._check()
            self._settle()
            self._tell()
            self._tell_discards()
        except OutboxError as error:
            self.announce(DatabaseLost("replays", error.detail))

    def let_go(self) -> None:
        """Another daemon goes on at once."""
        for held in self._held.values():
            try:
                self.store.let_go(held.lease)
            except OutboxError as error:
                self.announce(DatabaseLost("replays", error.detail))
        self._held.clear()

    def _take_over(self) -> None:
        free = self.limits.max_claim - len(self._held)
        for lease in self.store.take_over(free) if free > 0 else ():
            batch = self.store.get(lease.id)
            if batch is not None and self.store.begin(lease):
                self._held[lease.id] = Held(lease, batch, ReplayPace(batch.rate or DEFAULT_RATE))

    def _dispatch(self, held: Held) -> bool:
        """Whether it stays ours."""
        now = self.clock()
        if held.pace.wait_seconds(now) > 0:
            return self.store.renew(held.lease)
        rate = held.batch.rate or DEFAULT_RATE
        step = self._step(held, min(self.limits.max_start_per_batch, max(1, int(rate * INTERVAL_SECONDS))))
        if step is None:
            return False
        held.pace.moved(step.replayed + step.skipped, now)
        if not step.left:
            self.store.finish_dispatch(held.lease)
        return step.left > 0

    def _step(self, held: Held, rows: int) -> Dispatched | None:
        """An error that waiting does not cure ends the batch as `failed`; an outage is the caller's."""
        try:
            return self.store.dispatch(held.lease, rows)
        except OutboxError:
            raise
        except Exception as error:
            detail = cut(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", 500)
            self.announce(Warned("replay.failed", detail, {"batch": str(held.batch.id)}))
            self.store.fail(held.lease, "unknown", detail)
            return None

    def _check(self) -> None:
        for lease in self.store.take_checks(self.limits.max_poll):
            self.store.check(lease, self.limits.max_polls)

    def _settle(self) -> None:
        for lease in self.store.take_settles(self.limits.max_settle):
            self.store.settle(lease)

    def _tell(self) -> None:
        """Whoever has moved the rows, a command, the console or a daemon: one daemon counts and logs it."""
        for batch, replayed, skipped in self.store.tell(MOST_TOLD):
            if replayed or skipped:
                self.announce(EventsReplayed(batch.id, batch.source, replayed, skipped, batch.requested_by))
            if batch.is_over:
                self._over(batch)

    def _tell_discards(self) -> None:
        """One line per event; of a flush, which may be of many thousands, one line."""
        flushed: dict[UUID, list[EventDiscarded]] = {}
        for each in self.discarded(MOST_DISCARDS_TOLD):
            if each.batch is None:
                self.announce(each)
            else:
                flushed.setdefault(each.batch, []).append(each)
        for batch, events in flushed.items():
            self.announce(EventsFlushed(batch, len(events), events[0].by, events[0].reason))

    def _over(self, batch: ReplayBatch) -> None:
        took = ((batch.settled_at or batch.updated_at) - batch.created_at).total_seconds()
        counts = (batch.done, batch.failed_again, batch.still_open)
        self.announce(ReplaySettled(batch.id, batch.status, *counts, took, batch.reason or ""))
