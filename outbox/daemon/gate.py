"""Says whether a lane may claim now, and for which targets: systemic pauses, the outage breaker, operator pauses.

Owns the state of every pause in this process; sends nothing itself, the probe is handed in.
"""

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outbox.facts import Announce, OperatorPaused, OperatorResumed, SinkPaused, SinkResumed
from outbox.policy.backoff import probe_delay
from outbox.policy.outcome import Failure
from outbox.ports import Clock, ControlRow

EVERYTHING = "*"


@dataclass(slots=True)
class TargetPause:
    """One target that is not written to. `tries` counts probes, so that they thin out to one in five seconds."""

    target: str
    cause: str
    detail: str
    since: float
    next_probe: float
    tries: int = 0
    probing: bool = False


class PauseGate:
    def __init__(self, announce: Announce, clock: Clock, probe: Callable[[str], Failure | None]) -> None:
        self._announce = announce
        self._clock = clock
        self._probe = probe
        self._pauses: dict[str, TargetPause] = {}
        self._controls: dict[str, ControlRow] = {}
        self._lock = threading.Lock()

    # What a batch has met

    def pause(self, target: str, cause: str, detail: str) -> None:
        """Repeated causes keep the first time; a new cause replaces the old one."""
        now = self._clock()
        with self._lock:
            pause = self._pauses.get(target)
            if pause is not None and pause.cause == cause:
                pause.probing = False
                pause.next_probe = now + probe_delay(pause.tries, random.random())  # noqa: S311
                return
            since = now if pause is None else pause.since
            delay = probe_delay(0, random.random())  # noqa: S311
            self._pauses[target] = TargetPause(target, cause, detail, since, now + delay, tries=1)
        self._announce(SinkPaused(target, cause, detail))

    def resume(self, target: str) -> None:
        with self._lock:
            pause = self._pauses.pop(target, None)
        if pause is not None:
            self._announce(SinkResumed(target, pause.cause, self._clock() - pause.since))

    def give_up_probe(self, target: str) -> None:
        """A trial that met neither success nor the cause: someone else may try."""
        with self._lock:
            if target in self._pauses:
                self._pauses[target].probing = False

    # What a lane asks

    def paused_targets(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._pauses)

    def due_probe(self) -> str | None:
        """A target whose next probe is due; the caller that gets it must `resume`, `pause` or `give_up_probe`."""
        now = self._clock()
        with self._lock:
            for pause in self._pauses.values():
                if not pause.probing and pause.next_probe <= now:
                    pause.probing = True
                    pause.tries += 1
                    return pause.target
        return None

    def still_broken(self, target: str) -> bool:
        """Ask the sink. True = the cause is still there, and the next probe is set."""
        failure = self._probe(target)
        if failure is None:
            return False
        self.pause(target, failure.reason, failure.error)
        return True

    def wait_seconds(self) -> float:
        """Until the next probe: how long a lane that may not claim rests."""
        now = self._clock()
        with self._lock:
            due = [pause.next_probe - now for pause in self._pauses.values() if not pause.probing]
        return min(max(min(due, default=0.5), 0.05), 1.0)

    # Pauses by operators

    def obey(self, controls: Iterable[ControlRow]) -> None:
        new = {control.scope: control for control in controls}
        with self._lock:
            old, self._controls = self._controls, new
        for scope in new.keys() - old.keys():
            self._announce(OperatorPaused(scope, new[scope].by, new[scope].reason))
        for scope in old.keys() - new.keys():
            self._announce(OperatorResumed(scope))

    def stopped_by_operator(self) -> bool:
        return EVERYTHING in self._controls

    def types_stopped_by_operator(self) -> frozenset[str]:
        return frozenset(scope.removeprefix("type:") for scope in self._controls if scope.startswith("type:"))
