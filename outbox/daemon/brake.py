"""Holds back failures and deletes that come in a flood: a broken mapping must not fail 100,000 good events. Counts by
fingerprint, over all lanes of its process."""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from outbox.facts import Announce, BrakeOff, BrakeOn
from outbox.policy.outcome import Failure
from outbox.policy.settle import HOLD_SECONDS
from outbox.ports import Clock

WINDOW_SECONDS: Final = 60.0
MOST_FAILURES: Final = 50  # per fingerprint, minute and process
MOST_FINGERPRINTS: Final = 1_000  # memory is bounded even if every error were different


@dataclass(slots=True)
class _Track:
    failed: deque[float] = field(default_factory=deque)
    held: int = 0
    last_held: float = 0.0


@dataclass(slots=True)
class Brake:
    announce: Announce
    clock: Clock
    _tracks: dict[str, _Track] = field(default_factory=dict)
    _let_fail: frozenset[str] = frozenset()  # an operator has checked them
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admits(self, failure: Failure) -> bool:
        fingerprint, now = failure.fingerprint or failure.reason, self.clock()
        with self._lock:
            if self.lets(fingerprint):
                return True
            failed = self._track(fingerprint).failed
            while failed and failed[0] <= now - WINDOW_SECONDS:
                failed.popleft()
            if len(failed) < MOST_FAILURES:
                failed.append(now)
                return True
        self.hold(fingerprint, 1, failure)
        return False

    def holds(self, fingerprint: str) -> bool:
        track = self._tracks.get(fingerprint)
        return track is not None and track.held > 0

    def hold(self, fingerprint: str, number: int, failure: Failure) -> None:
        now = self.clock()
        with self._lock:
            track = self._track(fingerprint)
            first = not track.held
            track.held, track.last_held = track.held + number, now
        if first:
            self.announce(BrakeOn(fingerprint, failure.reason, failure.error))

    def let_go(self, fingerprint: str) -> None:
        """What it held was right after all."""
        with self._lock:
            track = self._tracks.pop(fingerprint, None)
        if track is not None and track.held:
            self.announce(BrakeOff(fingerprint, track.held))

    def let_fail(self, chosen: frozenset[str]) -> None:
        """Called every second: what operators let fail. Ends these brakes, and those that held nothing for a hold and a
        window."""
        rested = self.clock() - HOLD_SECONDS - WINDOW_SECONDS
        with self._lock:
            self._let_fail = chosen
            over = {
                fingerprint: track.held
                for fingerprint, track in self._tracks.items()
                if track.held and (track.last_held < rested or self.lets(fingerprint))
            }
            for fingerprint in over:
                self._tracks[fingerprint].held = 0
        for fingerprint, held in over.items():
            self.announce(BrakeOff(fingerprint, held))

    def lets(self, fingerprint: str) -> bool:
        """Whether an operator does, by itself or by what it begins with before a colon: lookups of all types."""
        return bool(self._let_fail & {fingerprint, fingerprint.partition(":")[0]})

    def _track(self, fingerprint: str) -> _Track:
        """The one that was used longest ago makes room, but not while it holds something: that would lift its brake
        unseen."""
        track = self._tracks.pop(fingerprint, None)
        if track is None and len(self._tracks) >= MOST_FINGERPRINTS:
            idle = (known for known, each in self._tracks.items() if not each.held)
            del self._tracks[next(idle, next(iter(self._tracks)))]
        self._tracks[fingerprint] = track or _Track()
        return self._tracks[fingerprint]
