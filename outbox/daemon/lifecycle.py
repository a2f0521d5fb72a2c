"""Runs one daemon: starts its loops, waits for a reason to stop, drains within the grace, gives back what is left."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outbox.daemon.lane import Lane
from outbox.daemon.lease import Leases
from outbox.daemon.shutdown import Stop
from outbox.daemon.startup import Enrolment, Step, begin
from outbox.errors import OutboxError
from outbox.facts import Announce, DatabaseLost, LeaseLost, Warned, WorkerDraining, WorkerStarted, WorkerStopped
from outbox.ports import EventStore

Loop = Callable[[threading.Event], None]
RELEASE_SECONDS = 3.0  # of the grace, kept for giving back what the lanes could not finish


@dataclass(slots=True)
class Lifecycle:
    name: str
    version: str
    target: str
    lanes: Sequence[Lane]
    loops: dict[str, Loop]  # upkeep, reclaimer, sampler, chores: all but the lanes
    leases: Leases
    enrolment: Enrolment
    store: EventStore
    stop: Stop
    announce: Announce
    steps: Sequence[Step]  # what the database is asked before the first claim; then the worker id is taken
    grace_seconds: float
    max_runtime_seconds: float = 0.0
    once: bool = False
    patient: bool = True  # waits for the database
    on_ready: Callable[[], None] = lambda: None
    on_draining: Callable[[], None] = lambda: None
    _background: threading.Event = field(default_factory=threading.Event)

    def run(self) -> bool:
        """True = everything in flight was finished or given back."""
        started = time.monotonic()
        enter: Step = lambda: self.enrolment.enter(self.stop.event)  # noqa: E731
        if not begin([*self.steps, enter], self.announce, self.stop.event, patient=self.patient):
            return True
        self.announce(WorkerStarted(self.name, self.version, len(self.lanes), self.target))
        background = [self._start(name, loop) for name, loop in self._all_loops().items()]
        lanes = [self._start_lane(lane) for lane in self.lanes]
        self.on_ready()
        self._wait(lanes)
        clean, released = self._drain(lanes)
        self._background.set()
        for thread in background:
            thread.join(2.0)
        self._leave()
        self.announce(WorkerStopped(clean, released, time.monotonic() - started))
        return clean

    def _all_loops(self) -> dict[str, Loop]:
        beat: Loop = lambda stop: self.enrolment.run(stop, lambda: self.stop.request("worker id taken over"))  # noqa: E731
        return {"heartbeat": self.leases.run, "enrolment": beat, **self.loops}

    def _start(self, name: str, loop: Loop) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(name, loop), name=name, daemon=True)
        thread.start()
        return thread

    def _guarded(self, name: str, loop: Loop) -> None:
        """A loop that fails is announced and started again: a daemon without its reclaimer would seem healthy."""
        while not self._background.is_set():
            try:
                loop(self._background)
                return
            except Exception as error:
                self.announce(Warned("loop.error", f"{name}: {type(error).__name__}: {error}"[:500]))
                self._background.wait(1.0)

    def _start_lane(self, lane: Lane) -> threading.Thread:
        target = lane.step if self.once else lambda: lane.run(self.stop.is_set)
        thread = threading.Thread(target=target, name=f"lane-{lane.number}", daemon=True)
        thread.start()
        return thread

    def _wait(self, lanes: Sequence[threading.Thread]) -> None:
        ends = time.monotonic() + self.max_runtime_seconds if self.max_runtime_seconds else None
        while not self.stop.is_set():
            if self.once and not any(thread.is_alive() for thread in lanes):
                return
            if ends is not None and time.monotonic() >= ends:
                self.stop.request("max runtime")
                return
            self.stop.event.wait(0.05 if self.once else 0.25)

    def _drain(self, lanes: Sequence[threading.Thread]) -> tuple[bool, int]:
        if self.stop.is_set():
            self.announce(WorkerDraining(self.stop.cause, self.grace_seconds))
            self.on_draining()
        self.enrolment.state = "draining"
        for lane in self.lanes:
            lane.wake.set()
        ends = time.monotonic() + max(1.0, self.grace_seconds - RELEASE_SECONDS)
        for thread in lanes:
            thread.join(max(0.0, ends - time.monotonic()))
        return self._give_back()

    def _give_back(self) -> tuple[bool, int]:
        """At the end of the grace the main thread releases by token whatever a lane still holds."""
        released, clean = 0, True
        for holding in self.leases.held():
            try:
                given = self.store.release(holding.token)
                released += given.rows
                if given.busy:
                    clean = False
                    self.announce(LeaseLost(holding.token, given.busy, "release"))
            except OutboxError as error:
                clean = False
                self.announce(DatabaseLost("release", error.detail))
                self.announce(LeaseLost(holding.token, len(holding.ids), "release"))
        return clean, released

    def _leave(self) -> None:
        try:
            self.enrolment.leave()
        except OutboxError as error:
            self.announce(DatabaseLost("leave", error.detail))
