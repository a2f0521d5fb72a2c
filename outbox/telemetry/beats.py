"""Knows when each loop of the daemon last completed a round. It asks no server: a restart fixes no outage."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from outbox.config import Settings

DEFAULT_LIMIT_SECONDS: Final = 60.0
START_LIMIT_SECONDS: Final = 300.0  # an attempt to connect beats only at its end, and a dead DNS resolver takes minutes
# Projection does not need these, so their failure must not cause a restart: not a slow webhook receiver, a long prune
# or a dead DNS resolver. They are reported like all others.
CHORES: Final = frozenset({"replays", "webhooks", "pruner", "rollup", "sampler", "listen"})


def loop_limits(settings: Settings) -> dict[str, float]:
    """Seconds by kind of loop. A loop that waits long by its settings is not stalled. A batch may last while its lease
    is renewed; a lane that takes longer than that hangs."""
    return {
        "start": START_LIMIT_SECONDS,
        "lane": settings.reclaim.max_processing_seconds + DEFAULT_LIMIT_SECONDS,
        "reclaimer": 3 * settings.reclaim.interval_seconds + DEFAULT_LIMIT_SECONDS,
        "heartbeat": 3 * settings.lease.heartbeat_seconds + DEFAULT_LIMIT_SECONDS,
        "stream-heartbeat": 3 * settings.lease.heartbeat_seconds + DEFAULT_LIMIT_SECONDS,
    }


@dataclass(slots=True)
class _Loop:
    last: float
    limit: float
    at_server: bool = False

    def is_ok(self, now: float) -> bool:
        return self.at_server or now - self.last <= self.limit


class Beats:
    """`limits`: seconds by kind of loop, where `lane-0` and `lane:1` are of the kind `lane`."""

    def __init__(self, limits: Mapping[str, float] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = dict(limits or {})
        self._clock = clock
        self._loops: dict[str, _Loop] = {}
        self._own = threading.local()  # the loop of this thread
        self._lock = threading.Lock()

    def beat(self, loop: str) -> None:
        now = self._clock()
        with self._lock:
            self._own.loop = known = self._loops.setdefault(loop, _Loop(now, self._limit(loop)))
            known.last = now

    @contextmanager
    def at_server(self) -> Iterator[None]:
        """Around what is asked of a server: however long it takes to answer, the loop of this thread does not hang."""
        loop: _Loop | None = getattr(self._own, "loop", None)
        if loop is None or loop.at_server:
            yield
            return
        loop.at_server = True
        try:
            yield
        finally:
            loop.last, loop.at_server = self._clock(), False

    def forget(self, loop: str) -> None:
        with self._lock:
            self._loops.pop(loop, None)

    def alive(self) -> bool:
        """Whether the loops that projection needs are running. A chore that hangs shows only in the report."""
        now = self._clock()
        with self._lock:
            return all(loop.is_ok(now) for name, loop in self._loops.items() if name not in CHORES)

    def report(self) -> dict[str, Any]:
        now = self._clock()
        with self._lock:
            loops = sorted(self._loops.items())
        return {
            name: {
                "ok": loop.is_ok(now),
                "age_seconds": round(now - loop.last, 3),
                "limit_seconds": loop.limit,
                "needed": name not in CHORES,
            }
            for name, loop in loops
        }

    def _limit(self, loop: str) -> float:
        kind = re.split(r"[-:. ]?\d*$", loop, maxsplit=1)[0]
        return self._limits.get(loop, self._limits.get(kind, DEFAULT_LIMIT_SECONDS))
