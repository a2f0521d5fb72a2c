"""Takes back the rows of leases that ran out, every interval, one process at a time. Decides who counts as dead."""

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from outbox.errors import OutboxError
from outbox.facts import Announce, Beat, DatabaseLost, Fact, Reclaimed, Warned
from outbox.ports import Clock, Reclaim, Sweep

SWEEP_SECONDS: Final = 600.0


@dataclass(slots=True)
class Reclaimer:
    step: Callable[[Callable[[tuple[Any, ...]], bool]], Reclaim]
    sweep: Callable[[], Sweep]
    announce: Announce
    clock: Clock
    interval_seconds: float
    heartbeat_seconds: float
    _connected_since: float | None = None
    _next_sweep: float = 0.0

    def handle(self, fact: Fact) -> None:
        """An outage that some other loop met silenced all workers alike, also when it fell between two passes."""
        if isinstance(fact, DatabaseLost):
            self._connected_since = None

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self.interval_seconds):
            self.pass_once()

    def pass_once(self) -> None:
        """Steps until nothing is left: each is short, so producers and lanes never wait for the whole."""
        self.announce(Beat("reclaimer"))
        try:
            if self._connected_since is None:
                self._connected_since = self.clock()
            self._take_back()
            self._sweep()
        except OutboxError as error:
            self._connected_since = None
            self.announce(DatabaseLost("reclaimer", error.detail))

    def _take_back(self) -> None:
        rows = abandoned = failed = 0
        for _ in range(200):
            step = self.step(self.is_dead)
            if step.refused:
                message = (
                    f"the database refused to take back {step.refused} events; they are tried again in ten minutes"
                )
                self.announce(Warned("reclaim.refused", message))
            if not step.rows:
                break
            rows, abandoned, failed = rows + step.rows, abandoned + step.abandoned, failed + step.failed
        if rows:
            self.announce(Reclaimed(rows, abandoned, failed))

    def _sweep(self) -> None:
        if self.clock() < self._next_sweep:
            return
        self._next_sweep = self.clock() + SWEEP_SECONDS
        swept = self.sweep()
        if not swept.finished:
            self._next_sweep = 0.0  # it goes on at the next pass
        if swept.limited:
            message = "the sweep for events without a lease met its time limit: it goes on in smaller pages"
            self.announce(Warned("sweep.limited", message))
        if swept.rows:
            self.announce(Reclaimed(swept.rows, 0, 0))

    def is_dead(self, lease: tuple[Any, ...]) -> bool:
        """Was the process that took this lease killed, rather than cut off? The evidence, from sure to likely:

        a later start holds its worker id; its pid is gone on this host; it is silent for three intervals, and
        we ourselves have been connected for longer than that (a database outage silences everyone).
        """
        start_id, _, worker_start_id, host, pid, silent, state = lease
        if worker_start_id is None or worker_start_id != start_id:
            return True
        if host == socket.gethostname() and pid is not None and not pid_alive(pid):
            return True
        if state == "stopped":
            return False
        connected = self.clock() - (self._connected_since or self.clock())
        return bool(silent) and connected > 3 * self.heartbeat_seconds


def pid_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
