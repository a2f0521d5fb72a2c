"""What must be true before the first claim: the database answers (waited for), and the worker id is ours. Keeps the
process's heartbeat. Knows nothing of batches."""

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from outbox.daemon.reclaimer import pid_alive
from outbox.errors import DatabaseDown, OtherTarget, OutboxError, WorkerIdTaken
from outbox.facts import Announce, Beat, DatabaseBack, DatabaseLost, Warned
from outbox.policy.projection import Projects
from outbox.ports import Holder, Other

Step = Callable[[], object]
FIRST_DELAY_SECONDS: Final = 0.1
LAST_DELAY_SECONDS: Final = 10.0


def begin(steps: Sequence[Step], announce: Announce, stop: threading.Event, *, patient: bool) -> bool:
    """Take all steps in turn. Where the database does not answer, say so and repeat the step with backoff: a connection
    that drops costs one step, whatever was asked of it. False: a stop came first."""
    started, delay, away, left = time.monotonic(), FIRST_DELAY_SECONDS, False, list(steps)
    while left and not stop.is_set():
        announce(Beat("start"))
        try:
            left[0]()
            left, delay = left[1:], FIRST_DELAY_SECONDS
        except DatabaseDown as error:
            if not patient:
                raise
            away = True
            announce(DatabaseLost("start", f"{error.detail}; trying again in {delay:.1f} s"))
            stop.wait(delay)
            delay = min(delay * 2, LAST_DELAY_SECONDS)
    if away and not left:
        announce(DatabaseBack("start", time.monotonic() - started))
    return not left


CHECK_SECONDS: Final = 0.5


class Register(Protocol):
    def register(self, about: dict[str, Any], dead_start_id: UUID | None) -> bool: ...
    def holder(self) -> Holder | None: ...
    def others(self) -> list[Other]: ...
    def beat(self, state: str, server: str | None = None) -> bool: ...
    def leave(self) -> None: ...


@dataclass(slots=True)
class Enrolment:
    register: Register
    worker_id: str
    version: str
    heartbeat_seconds: float
    entity_types: list[str]
    projects: Projects
    announce: Announce
    state: str = "running"
    server: Callable[[], str | None] = lambda: None  # what is written to, once it is known

    def enter(self, stop: threading.Event) -> None:
        """What holds up a start, another worker of this id or with another target: free or dead, at once. Silent: wait
        until it is so for three of its intervals. Renewed meanwhile: refuse. Two that start at one moment see each
        other, because each writes before it reads."""
        silent: dict[UUID, float] = {}
        while (found := self._in_the_way()) is not None:
            self.announce(Beat("start"))
            holder, event, refusal = found
            if holder.silent_seconds < silent.get(holder.start_id, 0.0):
                raise refusal
            if holder.start_id not in silent:
                left = max(0.0, 3 * holder.heartbeat_seconds - holder.silent_seconds)
                message = f"{refusal.detail}; waiting {left:.0f} s for it to fall silent"
                self.announce(Warned(event, message, {"wait_seconds": round(left, 1)}))
            silent[holder.start_id] = holder.silent_seconds
            if stop.wait(CHECK_SECONDS):
                raise type(refusal)("stopped while waiting for the other worker")

    def _in_the_way(self) -> tuple[Holder, str, OutboxError] | None:
        """Takes the worker id. Answers the worker that has it, or one that may be alive and writes an entity type to
        another index."""
        holder = self.register.holder()
        dead = holder is not None and _is_dead(holder)
        if not self.register.register(self._about(), holder.start_id if holder and dead else None):
            if holder is None:  # somebody was faster just now
                return self._in_the_way()
            taken = WorkerIdTaken(f"{self.worker_id} runs on {holder.host} as pid {holder.pid}")
            return holder, "worker.id_taken", taken
        for other in self.register.others():
            why = self.projects.conflict(Projects.of(other.projects))
            if why is not None and not _is_dead(other.holder):
                self.register.leave()
                elsewhere = OtherTarget(f"{other.worker_id} on {other.holder.host} writes {why}")
                return other.holder, "worker.other_target", elsewhere
        return None

    def _about(self) -> dict[str, Any]:
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": self.version,
            "heartbeat_seconds": self.heartbeat_seconds,
            "entity_types": self.entity_types,
            "projects": self.projects.stored(),
        }

    def run(self, stop: threading.Event, lost: Callable[[], None]) -> None:
        """The heartbeat of the process. A later start that took the id over makes this one leave."""
        while not stop.wait(self.heartbeat_seconds):
            try:
                if not self.register.beat(self.state, self.server()):
                    self.announce(Warned("worker.replaced", f"another process runs as {self.worker_id}: stopping"))
                    lost()
                    return
            except OutboxError as error:
                self.announce(DatabaseLost("heartbeat", error.detail))

    def leave(self) -> None:
        self.register.leave()


def _is_dead(holder: Holder) -> bool:
    """On this host a dead process frees its id at once: a killed worker restarts right away."""
    return holder.host == socket.gethostname() and not pid_alive(holder.pid)
