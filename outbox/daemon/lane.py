"""One lane: take a batch, project it, rest for as long as that says, until stopped; LISTEN ends the rest of idle ones.
Knows neither SQL nor HTTP."""

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from outbox.daemon.batch import BatchResult
from outbox.daemon.claiming import Claimer, Taken
from outbox.daemon.gate import EVERYTHING, PauseGate
from outbox.daemon.lease import HoldUp
from outbox.daemon.projector import Projector
from outbox.errors import DatabaseAway, DatabaseDown, LockHeld, OutboxError
from outbox.facts import Announce, Beat, DatabaseBack, DatabaseLost, NoProgress, Reclaimed, Warned
from outbox.policy.backoff import LanePace
from outbox.policy.outcome import Failure
from outbox.ports import Claimed, Clock

# An idle lane checks so often whether another of its process is held up in a batch for as long: then it polls at once.
# Otherwise everyone would wait for the poll interval (0.5 s) whenever the one lane that is awake meets a locked row.
RELIEF_SECONDS: Final = 0.05
# A batch of one event whose shard is down made its lane rest for half a second and more. If the sink has answered for
# other documents within this time, the lane goes on; a backlog that belongs to that shard alone still slows it down.
LATELY_SECONDS: Final = 1.0
FIRST_IDLE_SECONDS: Final = 0.01  # doubles up to the poll interval: the latency of the first event after a busy spell


class Underway:
    """Since when each lane of a process has been in its batch. Lanes share it: single operations of a dict are safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[int, tuple[Claimer, float]] = {}
        self._judged_at = float("-inf")

    def begin(self, lane: int, source: Claimer) -> None:
        self._since[lane] = source, self._clock()

    def end(self, lane: int) -> None:
        self._since.pop(lane, None)

    def judged(self) -> None:
        self._judged_at = self._clock()

    def judged_lately(self) -> bool:
        return self._clock() - self._judged_at <= LATELY_SECONDS

    def held_up(self, source: Claimer) -> bool:
        """Of lanes with another source, such as a stream beside the table, an idle lane can relieve none: it would only
        ask its own database twenty times per second."""
        latest = self._clock() - RELIEF_SECONDS
        return any(since <= latest for theirs, since in list(self._since.values()) if theirs is source)


@dataclass(slots=True)
class Lane:
    number: int
    claimer: Claimer
    projector: Projector
    gate: PauseGate
    pace: LanePace
    announce: Announce
    clock: Clock
    poll_seconds: float
    pause_on_outage: bool
    underway: Underway
    wake: threading.Event = field(default_factory=threading.Event)  # set by LISTEN and by the stop
    _idle_seconds: float = FIRST_IDLE_SECONDS
    _away_since: float | None = None
    _in_a_row: int = 0  # batches without progress
    _idling: bool = True  # nothing to do, or about to find that out: a NOTIFY ends the rest that follows
    _has_batch: bool = False
    _rests: bool = False
    _adrift: UUID | None = None  # the token of a batch that PostgreSQL went away from

    def run(self, stopping: Callable[[], bool]) -> None:
        while not stopping():
            delay = self.step()
            if delay > 0:
                self._rest(delay, stopping)

    def _rest(self, seconds: float, stopping: Callable[[], bool]) -> None:
        """A stop ends it. While idle a NOTIFY does too, and a lane that is held up in its batch: nobody polls for it. A
        busy producer must not cancel the pauses after failures."""
        if not self._idling:
            self.wake.clear()  # of a NOTIFY during the step; a stop is asked for below
        self._rests = self._idling
        while seconds > 0 and not stopping():
            if self.wake.wait(min(seconds, RELIEF_SECONDS) if self._idling else seconds):
                break
            seconds -= RELIEF_SECONDS if self._idling else seconds
            if self._idling and self.underway.held_up(self.claimer):
                break
        self._rests = False
        self.wake.clear()

    def notice(self) -> None:
        if self._idling:
            self.wake.set()

    def notice_at_rest(self) -> bool:
        if rests := self._rests:
            self.wake.set()
        return rests

    def step(self) -> float:
        """One batch, and how long to rest after it. An error never ends the lane: it is announced, and tried again."""
        self.announce(Beat(f"lane-{self.number}"))
        self._idling, self._has_batch = True, False
        try:
            delay = self._advance()
        except LockHeld as error:  # the database is there: someone is in the way
            return self._stuck(HoldUp("database", error.detail))
        except OutboxError as error:
            self._idling = False
            delay = self._lost(error)
            return self._stuck(HoldUp("database", error.detail or error.message)) if self._has_batch else delay
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"[:500]
            self.announce(Warned("lane.error", detail, {"lane": self.number}))
            return self._stuck(HoldUp("error", detail))
        self._found_again()
        return delay

    def _advance(self) -> float:
        self._bring_back()
        taken = self.claimer.take(self.number)
        if taken.claimed is None:
            self._idling = taken.wait_seconds is None
            return self._idle() if taken.wait_seconds is None else taken.wait_seconds
        self._idle_seconds = FIRST_IDLE_SECONDS
        self._idling, self._has_batch = False, True
        self.underway.begin(self.number, self.claimer)
        try:
            result = self._project(taken)
        finally:
            self.underway.end(self.number)
        if result.unreachable is not None:
            return self._outage(result.unreachable)
        if result.judged:
            self.underway.judged()
        if result.stalled and not (result.away and self.underway.judged_lately()):
            return self.pace.failed(random.random())  # noqa: S311
        if result.no_progress is not None:
            return self._stuck(result.no_progress)
        self.pace.succeeded()
        self._in_a_row = 0
        return 0.0

    def _stuck(self, hold_up: HoldUp) -> float:
        """The next claim would most likely meet the same: rest longer each time, whatever the cause."""
        self._idling = False
        self._in_a_row += 1
        delay = self.pace.failed(random.random())  # noqa: S311
        self.announce(NoProgress(self.number, hold_up.reason, hold_up.detail, self._in_a_row, delay))
        return delay

    def _project(self, taken: Taken) -> BatchResult:
        assert taken.claimed is not None
        try:
            result = self.projector.project(taken.claimed, self.number)
        except Exception as error:
            if taken.trial is not None:
                self.gate.give_up_probe(taken.trial)
            self._give_back(taken.claimed, error)
            raise
        if taken.trial is not None:
            self._end_trial(taken.trial, result)
        return result

    def _give_back(self, claimed: Claimed, error: Exception) -> None:
        """A batch that ended in an error goes back at once, not when its lease ends. The cases:

        the database went away  it goes back before the next claim; nothing counts
        it is down otherwise    what was asked may be what broke it: the lease expires, or the store gives back
        an error that we know   a person must act: no row is at fault
        any other               it counts as a death of the worker, so that the row at fault is claimed apart, and found
        """
        try:
            if isinstance(error, DatabaseDown):
                self._adrift = claimed.token if isinstance(error, DatabaseAway) else None
                self.projector.store.unanswered(claimed.token)
            elif isinstance(error, OutboxError):
                self.projector.store.release(claimed.token)
            else:
                detail = f"{type(error).__name__} while it was worked on"
                taken = self.projector.store.abandon(claimed.token, [event.id for event in claimed.events], detail)
                self.announce(Reclaimed(taken.rows, taken.abandoned, taken.failed))
        except Exception as second:
            detail = f"the batch waits for the end of its lease: {type(second).__name__}: {second}"[:500]
            self.announce(Warned("lane.error", detail, {"lane": self.number}))

    def _bring_back(self) -> None:
        """Without it a batch that a restart of PostgreSQL cut short would wait for the end of its lease."""
        token, self._adrift = self._adrift, None
        if token is None:
            return
        try:
            self.projector.store.release(token)
        except LockHeld:  # by a person: the lane does not wait for it, the lease ends by itself
            pass
        except DatabaseDown:
            self._adrift = token
            raise

    def _end_trial(self, target: str, result: BatchResult) -> None:
        """Any answer ends an outage of everything; a target is open again only when nothing systemic was met. What held
        the trial up before it was sent says nothing."""
        held_up = result.hold_up is not None and not result.sent
        if result.unreachable is None and not held_up and (target == EVERYTHING or not result.systemic):
            self.gate.resume(target)
        else:
            self.gate.give_up_probe(target)

    def _outage(self, failure: Failure) -> float:
        """`pause`: the breaker waits and probes, nothing is spent. `count`: the lane slows down."""
        if self.pause_on_outage:
            self.gate.pause(EVERYTHING, failure.reason, failure.error)
            return self.gate.wait_seconds()
        return self.pace.failed(random.random())  # noqa: S311

    def _idle(self) -> float:
        delay = self._idle_seconds
        self._idle_seconds = min(self.poll_seconds, delay * 2)
        return self._pause(min(delay, self.poll_seconds))

    def _pause(self, seconds: float) -> float:
        """Jittered, so that many lanes do not poll in step."""
        return seconds * (0.75 + 0.5 * random.random())  # noqa: S311

    def _lost(self, error: OutboxError) -> float:
        if self._away_since is None:
            self._away_since = self.clock()
            self.announce(DatabaseLost(f"lane-{self.number}", error.detail))
        return self._pause(min(5.0, 0.2 + (self.clock() - self._away_since) / 2))

    def _found_again(self) -> None:
        if self._away_since is not None:
            self.announce(DatabaseBack(f"lane-{self.number}", self.clock() - self._away_since))
            self._away_since = None


def wake_one(lanes: Sequence[Lane]) -> None:
    """New rows wake one lane that rests: a second would only claim beside it. The first lane is the last to be woken,
    because it also searches for suspects, by three claims per second. Where none rests, one may have claimed too early:
    then each claims once more."""
    if not any(lane.notice_at_rest() for lane in reversed(lanes)):
        for lane in lanes:
            lane.notice()


CHECK_SECONDS: Final = 5.0  # how long a silent connection is trusted before it is asked whether it still listens


@dataclass(slots=True)
class Listener:
    """`open_ear`: what it opens waits for a notification; False when none came. Raises when the connection is gone."""

    open_ear: Callable[[], AbstractContextManager[Callable[[float], bool]]]
    wake: Callable[[], None]
    announce: Announce

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._listen(stop)
            except OutboxError as error:
                self.announce(DatabaseLost("listen", error.detail))
                stop.wait(1.0)

    def _listen(self, stop: threading.Event) -> None:
        with self.open_ear() as notified:
            while not stop.is_set():
                self.announce(Beat("listen"))
                if notified(CHECK_SECONDS):
                    self.wake()
