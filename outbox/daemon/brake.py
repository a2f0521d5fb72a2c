"""Holds back what comes in a flood: a broken mapping must not fail 100,000 good events, nor a broken view delete their
documents. Counts over all lanes of its process, per fingerprint."""

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
LEAST_LOOKUPS: Final = 50
MOST_FINGERPRINTS: Final = 1_000  # memory is bounded even if every error were different


@dataclass(slots=True)
class _Track:
    """Of one fingerprint. `seen` within the window: when, how many, and how many of these were bad."""

    seen: deque[tuple[float, int, int]] = field(default_factory=deque)
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
        """May one more event fail with this?"""
        fingerprint, now = failure.fingerprint or failure.reason, self.clock()
        with self._lock:
            if self._is_let(fingerprint):
                return True
            seen = self._track(fingerprint, now).seen
            if len(seen) < MOST_FAILURES:
                seen.append((now, 1, 1))
                return True
        self.hold(fingerprint, 1, failure)
        return False

    def admits_gone(self, fingerprint: str, looked_up: int, gone: int) -> bool:
        """May so many entities that were not found be deleted? Half of them gone at once looks like a broken view."""
        now = self.clock()
        with self._lock:
            seen = self._track(fingerprint, now).seen
            seen.append((now, looked_up, gone))
            if not gone or self._is_let(fingerprint):
                return True
            total = sum(n for _, n, _ in seen)
            return total < LEAST_LOOKUPS or sum(n for _, _, n in seen) * 2 <= total

    def hold(self, fingerprint: str, number: int, failure: Failure) -> None:
        """They wait."""
        now = self.clock()
        with self._lock:
            track = self._track(fingerprint, now)
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
                if track.held and (track.last_held < rested or self._is_let(fingerprint))
            }
            for fingerprint in over:
                self._tracks[fingerprint].held = 0
        for fingerprint, held in over.items():
            self.announce(BrakeOff(fingerprint, held))

    def _is_let(self, fingerprint: str) -> bool:
        """By itself, or by what it begins with before a colon: lookups of all types."""
        return bool(self._let_fail & {fingerprint, fingerprint.partition(":")[0]})

    def _track(self, fingerprint: str, now: float) -> _Track:
        """The one that was used longest ago makes room, but not while it holds something: that would lift its brake
        unseen."""
        track = self._tracks.pop(fingerprint, None)
        if track is None and len(self._tracks) >= MOST_FINGERPRINTS:
            idle = (known for known, each in self._tracks.items() if not each.held)
            del self._tracks[next(idle, next(iter(self._tracks)))]
        track = self._tracks[fingerprint] = track or _Track()
        while track.seen and track.seen[0][0] <= now - WINDOW_SECONDS:
            track.seen.popleft()
        return track
