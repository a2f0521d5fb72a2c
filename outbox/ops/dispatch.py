"""Moves a replay of this process: dispatches at its rate, follows it, settles it. Creates none and cancels none.

What it has done is told, counted and logged by the next daemon that looks (`daemon/chores`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from uuid import UUID

from outbox.errors import DependencyDown, NotFound, OutboxError
from outbox.policy.redact import cut
from outbox.policy.replay import DEFAULT_RATE, LEASE_SECONDS, Dispatched, Lease, Pace, ReplayBatch, step_rows

LOOK_SECONDS: Final = 0.25
AWAY_WAITS: Final = (0.2, 1.0, 3.0)  # a short outage is waited for; after a longer one a daemon goes on

T = TypeVar("T")
Tell = Callable[[Dispatched], None]


class Steps(Protocol):
    """What moves a batch, each a compare-and-set under its lease."""

    def get(self, id: UUID) -> ReplayBatch | None: ...
    def begin(self, lease: Lease) -> bool: ...
    def renew(self, lease: Lease) -> bool: ...
    def let_go(self, lease: Lease) -> None: ...
    def dispatch(self, lease: Lease, rows: int) -> Dispatched | None: ...
    def finish_dispatch(self, lease: Lease) -> bool: ...
    def fail(self, lease: Lease, failure_type: str, reason: str) -> ReplayBatch | None: ...
    def take_looks(self, limit: int, id: UUID | None = None) -> Sequence[Lease]: ...
    def look(self, lease: Lease, max_polls: int) -> ReplayBatch | None: ...
    def take_settles(self, limit: int, id: UUID | None = None) -> Sequence[Lease]: ...
    def settle(self, lease: Lease) -> ReplayBatch | None: ...


@dataclass(frozen=True, slots=True)
class Dispatcher:
    steps: Steps
    max_polls: int = 20
    rows_a_step: int = 500
    clock: Callable[[], float] = time.monotonic

    def get(self, id: UUID) -> ReplayBatch:
        batch = self.steps.get(id)
        if batch is None:
            raise NotFound(f"replay {id}")
        return batch

    def run(
        self, batch: ReplayBatch, lease: Lease, tell: Tell = lambda _: None, stop: threading.Event | None = None
    ) -> ReplayBatch:
        """Moves the pinned rows at the batch's rate, to the end, unless someone cancels or `stop` is set."""
        if not patiently(lambda: self.steps.begin(lease)):
            return self.get(batch.id)
        try:
            self._run(batch, lease, tell, stop or threading.Event())
        except DependencyDown:
            raise
        except Exception as error:
            told = first_line(error)
            self.steps.fail(lease, "unknown", told)
            raise OutboxError(f"replay {batch.id} failed: {told}") from error
        return self.get(batch.id)

    def _run(self, batch: ReplayBatch, lease: Lease, tell: Tell, stop: threading.Event) -> None:
        rate = batch.rate or DEFAULT_RATE
        pace, rows = Pace(rate), step_rows(rate, self.rows_a_step)
        while self._wait_for(pace, lease, stop):
            step = patiently(lambda: self.steps.dispatch(lease, rows))
            if step is None:
                return
            pace.moved(step.replayed + step.skipped, self.clock())
            tell(step)
            if not step.left:
                self.steps.finish_dispatch(lease)
                return
        self.steps.let_go(lease)

    def _wait_for(self, pace: Pace, lease: Lease, stop: threading.Event) -> bool:
        """False when stopped. A slow rate renews the lease meanwhile."""
        while (wait := pace.wait_seconds(self.clock())) > 0 and not stop.is_set():
            stop.wait(min(wait, LEASE_SECONDS / 3))
            if wait > LEASE_SECONDS / 3:
                self.steps.renew(lease)
        return not stop.is_set()

    def wait(
        self, id: UUID, tell: Callable[[ReplayBatch], None] = lambda _: None, stop: threading.Event | None = None
    ) -> ReplayBatch:
        """Follows the same looks as the daemons, and takes part in them, until the batch is over."""
        stopped = stop or threading.Event()
        while True:
            with suppress(DependencyDown):  # a look that fails is never a failed batch
                batch = self.follow(id)
                tell(batch)
                if batch.is_over:
                    return batch
            if stopped.wait(LOOK_SECONDS):
                return self.get(id)

    def follow(self, id: UUID) -> ReplayBatch:
        """One look, if it is due, and the settling, if nothing is open."""
        for lease in self.steps.take_looks(1, id):
            self.steps.look(lease, self.max_polls)
        for lease in self.steps.take_settles(1, id):
            self.steps.settle(lease)
        return self.get(id)


def patiently(step: Callable[[], T]) -> T:
    """A step that is safe to repeat: after a short outage, and when only the reply to its commit was lost."""
    for wait in AWAY_WAITS:
        try:
            return step()
        except DependencyDown:
            time.sleep(wait)
    return step()


def first_line(error: Exception) -> str:
    """PostgreSQL's further lines quote the row, and with it the payload."""
    return cut(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", 500)
