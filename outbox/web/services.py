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
from typing import Any, Final, Generic, TypeVar

from outbox.errors import DependencyDown, OutboxError
from outbox.ops.audit import AuditDesk, AuditPage
from outbox.ops.discard import DiscardDesk
from outbox.ops.events import Browse, Payloads
from outbox.ops.failures import FailureDesk, FailureGroup, Stats, StatsDesk
from outbox.ops.pauses import Pauses
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
# A reading that takes 300 ms comes every 3 s at most: a tenth of one connection's time.
REST: Final = 10.0
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
        self._problem = ""

    def __call__(self) -> SharedReading[T]:
        """Raises DependencyDown only where there is nothing useful to show instead."""
        if not self._is_fresh():
            self._read_or_wait()
        assert self._last is not None
        return SharedReading(self._last[1], self._age(), self._problem)

    def forget(self) -> None:
        """After an act of a person, who wants to see what it did: the next request waits for a new reading."""
        if self._last is not None:
            self._last = (self._clock() - self._every, self._last[1])

    def _is_fresh(self) -> bool:
        return self._last is not None and self._age() < self._every

    def _read_or_wait(self) -> None:
        """The first request reads. The others take what is there; where nothing is, they wait for the first."""
        if not self._reading.acquire(blocking=self._last is None):
            return
        try:
            if not self._is_fresh():
                began = self._clock()
                value = self._query()
                self._every = max(self._fresh_seconds, REST * (self._clock() - began))
                self._last, self._problem = (self._clock(), value), ""
        except DependencyDown as away:
            self._problem = away.message
            if self._last is None or self._age() > USEFUL_SECONDS:
                raise
        finally:
            self._reading.release()

    def _age(self) -> float:
        assert self._last is not None
        return self._clock() - self._last[0]


AT_ONCE: Final = 3  # a fourth waits; its lease may run out meanwhile, and a daemon takes it
log = logging.getLogger("outbox.web")


class ReplayDispatching:
    """Daemons follow the replays to their end (`daemon/replay_chore`)."""

    def __init__(self, replays: ReplayDesk) -> None:
        self._replays = replays
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="replay")

    def start(self, created: Created) -> None:
        """Returns at once."""
        if created.lease is not None:
            self._pool.submit(self._run, created)

    def run(self, created: Created) -> None:
        """Returns when the rows have moved: for a single event, whose state is the answer."""
        self._replays.dispatch(created, stop=self._stop)

    def close(self) -> None:
        """Lets go of what is under way."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, created: Created) -> None:
        try:
            self.run(created)
        except OutboxError as error:
            log.warning("replay %s was left to a daemon: %s", created.batch.id, error.detail or error.message)


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


def snapshot(
    status: StatusDesk, pulse: Callable[[], Mapping[str, Pulse]], stats: StatsDesk, browse: Browse, audit: AuditDesk
) -> Snapshot:
    return Snapshot(
        status=status.read(),
        pulse=pulse(),
        finished=stats.finished(),
        discarded=stats.store.discarded(),
        recent_failures=browse.page(EventFilter(), ("failed",), RECENT).events,
        recent_audit=audit.page(AuditFilter(), None, RECENT),
    )


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
    verifications: Callable[[int], Sequence[Mapping[str, Any]]]  # the newest comparisons, each with its report
    rebuilds: Callable[[int], Sequence[Rebuild]]
