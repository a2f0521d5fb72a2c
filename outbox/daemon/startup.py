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
        self._take_id(stop)
        while (found := self._elsewhere()) is not None:
            self.register.leave()
            (other, why), start_id = found, found[0].holder.start_id
            if other.holder.silent_seconds < silent.get(start_id, 0.0):
                raise OtherTarget(f"{other.worker_id} on {other.holder.host} writes {why}")
            if start_id not in silent:
                message = f"{other.worker_id} writes {why}; waiting for it to fall silent"
                self.announce(Warned("worker.other_target", message, {"worker": other.worker_id}))
            silent[start_id] = other.holder.silent_seconds
            if stop.wait(CHECK_SECONDS):
                raise OtherTarget("stopped while waiting for the other worker")
            self._take_id(stop)

    def _elsewhere(self) -> tuple[Other, str] | None:
        """A worker that may live and writes an entity type to another index, with what differs."""
        for other in self.register.others():
            why = self.projects.conflict(Projects.of(other.projects))
            here = other.holder.host == socket.gethostname()
            if why is not None and not (here and not pid_alive(other.holder.pid)):
                return other, why
        return None

    def _take_id(self, stop: threading.Event) -> None:
        waited_for: float | None = None
        while not self._try():
            self.announce(Beat("start"))
            holder = self.register.holder()
            if holder is None:
                continue
            if waited_for is not None and holder.silent_seconds < waited_for:
                raise WorkerIdTaken(f"{self.worker_id} runs on {holder.host} as pid {holder.pid}")
            if waited_for is None:
                left = max(0.0, 3 * holder.heartbeat_seconds - holder.silent_seconds)
                message = f"{self.worker_id} was last seen on {holder.host}; waiting {left:.0f} s for it to fall silent"
                self.announce(Warned("worker.id_taken", message, {"wait_seconds": round(left, 1)}))
            waited_for = holder.silent_seconds
            if stop.wait(CHECK_SECONDS):
                raise WorkerIdTaken("stopped while waiting for the worker id")

    def _try(self) -> bool:
        about = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": self.version,
            "heartbeat_seconds": self.heartbeat_seconds,
            "entity_types": self.entity_types,
            "projects": self.projects.stored(),
        }
        return self.register.register(about, self._dead_holder())

    def _dead_holder(self) -> UUID | None:
        """On this host a dead process frees its id at once: a killed worker restarts right away."""
        holder = self.register.holder()
        if holder is None or holder.host != socket.gethostname():
            return None
        return None if pid_alive(holder.pid) else holder.start_id

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
