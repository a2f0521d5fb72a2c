"""What the console needs from `ops`, one service per topic, with what it shares between requests.

`Shared` reads for all who watch, so that many open pages cost the database no more than one; `ReplayDispatching` moves
the replays that this console has created. The composition root fills `Services`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

from outbox.errors import DependencyDown, OutboxError
from outbox.ops.audit import AuditDesk, AuditPage
from outbox.ops.discard import DiscardDesk
from outbox.ops.events import Browse, Payloads
from outbox.ops.failures import FailureDesk, FailureGroup, Stats, StatsDesk
from outbox.ops.pauses import Pauses
from outbox.ops.reindex.verify import Verify
from outbox.ops.replay.desk import Created, ReplayDesk
from outbox.ops.replay.plan import Planner
from outbox.ops.reprojection import ProjectionDesk
from outbox.ops.settling import SettleWatch
from outbox.ops.status import Pulse, QueueStatus, StatusDesk
from outbox.ops.stored_event import StoredEvent
from outbox.ops.webhook import WebhookDesk
from outbox.policy.inputs import AuditFilter, EventFilter
from outbox.policy.reindex import Rebuild
from outbox.ports import Finding

FRESH_SECONDS: Final = 2.0
# A reading that takes 300 ms comes every 3 s: watching takes a tenth of one connection's time at most.
REST: Final = 10.0
WATCHED_SECONDS: Final = 30.0
# After this an old reading says more wrong than right.
USEFUL_SECONDS: Final = 300.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedReading(Generic[T]):
    """`problem`: it could not be read again, so this one is old."""

    value: T
    age_seconds: float
    problem: str = ""


class Shared(Generic[T]):
    def __init__(
        self,
        read: Callable[[], T],
        fresh_seconds: float = FRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._query = read
        self._fresh_seconds = fresh_seconds
        self._clock = clock
        self._reading = threading.Lock()
        self._last: tuple[float, T] | None = None
        self._every = fresh_seconds
        self._asked = float("-inf")
        self._problem = ""
        self._watcher: threading.Thread | None = None

    def __call__(self) -> SharedReading[T]:
        """Raises DependencyDown only where there is nothing useful to show instead."""
        self._asked = self._clock()
        if not self._is_fresh():
            self._read_or_wait()
        self._watch()
        return self._kept()

    def forget(self) -> None:
        """After an act of a person, who wants to see what it did: the next request waits for a new reading."""
        if self._last is not None:
            self._last = (self._clock() - 2 * self._every, self._last[1])

    def _is_fresh(self) -> bool:
        return self._last is not None and self._age() < 2 * self._every

    def _read_or_wait(self) -> None:
        """The first request reads. The others take what is there; where nothing is, they wait for the first."""
        if not self._reading.acquire(blocking=self._last is None):
            return
        try:
            if not self._is_fresh():
                self._read()
        except DependencyDown as away:
            self._problem = away.message
            if self._last is None or self._age() > USEFUL_SECONDS:
                raise
        finally:
            self._reading.release()

    def _read(self) -> None:
        began = self._clock()
        value = self._query()
        self._every = max(self._fresh_seconds, REST * (self._clock() - began))
        self._last, self._problem = (self._clock(), value), ""

    def _watch(self) -> None:
        if self._watcher is None or not self._watcher.is_alive():
            self._watcher = threading.Thread(target=self._keep_watching, name="sampler", daemon=True)
            self._watcher.start()

    def _keep_watching(self) -> None:
        while self._clock() - self._asked < WATCHED_SECONDS:
            time.sleep(self._every)
            with self._reading:
                try:
                    self._read()
                except Exception as away:
                    # At the end of the process the pool is closed under us; nobody is left to read this then.
                    self._problem = away.message if isinstance(away, OutboxError) else "It could not be read again."

    def _kept(self) -> SharedReading[T]:
        assert self._last is not None
        return SharedReading(self._last[1], self._age(), self._problem)

    def _age(self) -> float:
        assert self._last is not None
        return self._clock() - self._last[0]


AT_ONCE: Final = 3  # a fourth waits; its lease may run out meanwhile, and a daemon takes it
FOLLOW_SECONDS: Final = 0.5
log = logging.getLogger("outbox.web")


class ReplayDispatching:
    def __init__(self, replays: ReplayDesk) -> None:
        self._replays = replays
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._followed: set[UUID] = set()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="replay")
        self._follower = threading.Thread(target=self._follow, name="replay-follower", daemon=True)
        self._follower.start()

    def start(self, created: Created) -> None:
        """Returns at once."""
        if created.lease is not None:
            self._pool.submit(self._run, created)

    def run(self, created: Created) -> None:
        """Returns when the rows have moved: for a single event, whose state is the answer."""
        self._replays.dispatch(created, stop=self._stop)
        self.follow(created.batch.id)

    def follow(self, id: UUID) -> None:
        self._followed.add(id)
        self._wake.set()

    def close(self) -> None:
        """Lets go of what is under way."""
        self._stop.set()
        self._wake.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._follower.join(5)

    def _run(self, created: Created) -> None:
        try:
            self.run(created)
        except OutboxError as error:
            log.warning("replay %s was left to a daemon: %s", created.batch.id, error.detail or error.message)

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(None if not self._followed else FOLLOW_SECONDS)
            self._wake.clear()
            for id in tuple(self._followed):
                self._check(id)

    def _check(self, id: UUID) -> None:
        """One check, if it is due. A check that fails is never a failed batch."""
        try:
            if self._replays.follow(id).is_over:
                self._followed.discard(id)
        except OutboxError as error:
            log.warning("replay %s could not be checked: %s", id, error.detail or error.message)
            self._stop.wait(FOLLOW_SECONDS)


RECENT: Final = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`finished` goes as far back as the roll-up remembers; `pulse` is the last hour, minute by minute."""

    status: QueueStatus
    pulse: Mapping[str, Pulse]
    finished: Mapping[str, int]
    discarded: Mapping[str, int]
    recent_failures: Sequence[StoredEvent]
    recent_audit: AuditPage


def snapshots(
    status: StatusDesk,
    pulse: Callable[[], Mapping[str, Pulse]],
    stats: StatsDesk,
    browse: Browse,
    audit: AuditDesk,
) -> Callable[[], Snapshot]:
    def read() -> Snapshot:
        return Snapshot(
            status=status.read(),
            pulse=pulse(),
            finished=stats.finished(),
            discarded=stats.store.discarded(),
            recent_failures=browse.page(EventFilter(), ("failed",), RECENT).events,
            recent_audit=audit.page(AuditFilter(), None, RECENT),
        )

    return read


@dataclass(frozen=True, slots=True)
class Services:
    """`status`, `day`, `groups` and `findings` are shared readings: many open pages cost the database no more than one.
    `exports` is the audit over connections of its own."""

    status: Shared[Snapshot]
    day: Shared[Stats]
    groups: Shared[Sequence[FailureGroup]]
    findings: Shared[Sequence[Finding]]
    browse: Browse
    settling: SettleWatch
    payloads: Payloads
    failures: FailureDesk
    planner: Planner
    replays: ReplayDesk
    dispatching: ReplayDispatching
    discards: DiscardDesk
    pauses: Pauses
    projection: ProjectionDesk
    stats: StatsDesk
    audit: AuditDesk
    exports: AuditDesk
    webhooks: WebhookDesk
    verify: Verify
    rebuilds: Callable[[int], Sequence[Rebuild]]
