"""Keeps the leases of batches in flight alive while their work moves, and repeats what must be written while they
live. Claims nothing and settles nothing.

Leases are judged by the database's clock, which goes on while this machine sleeps; `time.monotonic` does not. So they
are counted by the boot clock, which is handed in, never patched.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from outbox.errors import DatabaseDown, LockHeld, OutboxError
from outbox.facts import Announce, Beat, DatabaseLost, Warned
from outbox.ports import Claimed, Clock, EventStore

# Linux counts suspended time in CLOCK_BOOTTIME. macOS has no such name; its CLOCK_MONOTONIC_RAW goes on in sleep.
# Elsewhere a suspended machine overestimates its lease: the token still fences what it settles.
PREFERRED: Final = ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC")


def best_clock(known: Mapping[str, Any]) -> int:
    return next(int(known[name]) for name in PREFERRED if name in known)


_CLOCK: Final = best_clock(vars(time))


def boottime() -> float:
    return time.clock_gettime(_CLOCK)


class HoldUp(NamedTuple):
    """Why a batch made no progress: one of `NoProgress`'s reasons, and what a person should read."""

    reason: str
    detail: str


class Holding:
    def __init__(self, claimed: Claimed, lease_seconds: float, max_processing_seconds: float, clock: Clock) -> None:
        self.token = claimed.token
        self.ids = [event.id for event in claimed.events]
        self.lost = False
        self._lease_seconds = lease_seconds
        self._max_processing_seconds = max_processing_seconds
        self.clock = clock
        asked_at = clock() if claimed.asked_at is None else claimed.asked_at
        self.started = self._renewed = asked_at

    def remaining(self) -> float:
        """Seconds of lease left, at least: measured from before the claim was sent, so that a suspended machine never
        overestimates its lease."""
        return self._renewed + self._lease_seconds - self.clock()

    def age(self) -> float:
        return self.clock() - self.started

    def hold_up(self, needed_seconds: float) -> HoldUp | None:
        """Why nothing of this batch may be sent any more, where `needed_seconds` of lease are needed for it."""
        if self.lost:
            return HoldUp("lease_lost", "the heartbeat found its lease gone")
        left = self.remaining()
        if left < needed_seconds:
            return HoldUp("lease_short", f"{left:.1f} s of its lease of {self._lease_seconds:g} s were left")
        # Past half of max processing nothing more is sent, so that it is over before it is taken away.
        if self.age() > self._max_processing_seconds / 2:
            return HoldUp("half_spent", f"half of its {self._max_processing_seconds:g} s of processing were over")
        return None

    def wants_renewal(self) -> bool:
        is_due = not self.lost and self.remaining() < self._lease_seconds * 0.75
        return is_due and self.age() <= self._max_processing_seconds

    def renewed(self, asked_at: float) -> None:
        self._renewed = asked_at


@dataclass(slots=True)
class Leases:
    """The heartbeat: a thread with its own connection. It stops at max processing: a hung lane loses its rows.

    `clock` is the boot clock, the same one that dates a claim (`Claimed.asked_at`)."""

    store: EventStore
    announce: Announce
    clock: Clock
    _: KW_ONLY
    lease_seconds: float
    heartbeat_seconds: float
    max_processing_seconds: float
    name: str = "heartbeat"
    _held: dict[UUID, Holding] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def holding(self, claimed: Claimed) -> Iterator[Holding]:
        holding = Holding(claimed, self.lease_seconds, self.max_processing_seconds, self.clock)
        with self._lock:
            self._held[holding.token] = holding
        try:
            yield holding
        finally:
            with self._lock:
                self._held.pop(holding.token, None)

    def held(self) -> list[Holding]:
        with self._lock:
            return list(self._held.values())

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self.heartbeat_seconds):
            self.beat()

    def beat(self) -> None:
        self.announce(Beat(self.name))
        for holding in self.held():
            if holding.wants_renewal():
                self._renew(holding)

    def _renew(self, holding: Holding) -> None:
        asked_at = self.clock()
        try:
            alive = self.store.renew(holding.token)
        except LockHeld as error:
            self.announce(Warned("heartbeat.locked", error.message))
            return
        except OutboxError as error:
            self.announce(DatabaseLost(self.name, error.detail))
            return
        if alive:
            holding.renewed(asked_at)
        else:
            # Announced by the settle that follows: it finds which rows are gone, and counts them once.
            holding.lost = True


T = TypeVar("T")
# For rows that someone has locked: an UPDATE is over by then. Who holds one for longer is idle in a transaction, and
# the lane has others to see to; the row is sent again when its lease has run out. With 2 s and a locked row every five
# seconds, one lane of four was always waiting.
BUSY_SECONDS: Final = 0.5
INSIST_SECONDS: Final = 60.0  # a machine that wakes up finds its connections dead, and the network a while later


def while_leased(step: Callable[[], T], holding: Holding) -> T:
    """Repeat `step` while the database is down and the lease is valid; the token makes a repetition harmless."""
    taken: T = _WHILE_LEASED(_take, step, holding)
    return taken


def until_unlocked(step: Callable[[], bool], holding: Holding) -> None:
    """Repeat `step` until it says that nothing is locked any more, for a moment."""
    _UNTIL_UNLOCKED(_take, step, holding)


def for_a_minute(step: Callable[[], T]) -> T:
    """Repeat `step` while the database is down, lease or not, for a minute: for what only this process can do."""
    return _FOR_A_MINUTE(step)


def _take(step: Callable[[], T], _: Holding) -> T:
    """The holding goes along for `_LeaseOver`."""
    return step()


class _LeaseOver(stop_base):
    """Past the lease the rows are someone else's: then this process must not go on trying."""

    def __call__(self, retry_state: RetryCallState) -> bool:
        holding: Holding = retry_state.args[1]
        return holding.lost or holding.remaining() < 0


def _while_down(stop: stop_base) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(DatabaseDown),
        wait=wait_random_exponential(multiplier=0.05, max=2.0),
        stop=stop,
        reraise=True,
    )


# One of each for all threads and batches: their parts refer to one another, so one per batch would hold its batch's ids
# until the garbage collector comes (7 MB of 92).
_WHILE_LEASED: Final = _while_down(_LeaseOver())
_FOR_A_MINUTE: Final = _while_down(stop_after_delay(INSIST_SECONDS))
_UNTIL_UNLOCKED: Final = Retrying(
    retry=retry_if_result(lambda free: not free),
    wait=wait_random_exponential(multiplier=0.02, max=0.3),
    stop=stop_after_delay(BUSY_SECONDS) | _LeaseOver(),
    retry_error_callback=lambda _: None,
)
