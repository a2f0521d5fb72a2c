"""Holds back verdicts that come in a flood: a broken mapping must not fail 100,000 good rows. Time is handed in."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

WINDOW_SECONDS: Final = 60.0
MOST_FAILURES: Final = 50  # per fingerprint, minute and process
HOLD_SECONDS: Final = 60.0
MOST_FINGERPRINTS: Final = 1_000  # memory is bounded even if every error were different


@dataclass(slots=True)
class _Track:
    failed: deque[float] = field(default_factory=deque)
    held: int = 0
    last_held: float = 0.0

    @property
    def on(self) -> bool:
        return self.held > 0


class Brake:
    """One process's count of deterministic verdicts, per fingerprint."""

    def __init__(self, most: int = MOST_FAILURES) -> None:
        self._most = most
        self._tracks: dict[str, _Track] = {}
        self.let_fail: frozenset[str] = frozenset()  # an operator has checked them and lets them fail

    def admit(self, fingerprint: str, now: float) -> bool:
        """May one more event with this fingerprint fail now? False = hold it."""
        if fingerprint in self.let_fail:
            return True
        track = self._tracks.get(fingerprint)
        if track is None:
            self._make_room()
            track = self._tracks[fingerprint] = _Track()
        while track.failed and track.failed[0] <= now - WINDOW_SECONDS:
            track.failed.popleft()
        if len(track.failed) < self._most:
            track.failed.append(now)
            return True
        track.held += 1
        track.last_held = now
        return False

    def _make_room(self) -> None:
        """The oldest goes, but not one that holds rows back: that would lift its brake unseen."""
        if len(self._tracks) >= MOST_FINGERPRINTS:
            idle = (fingerprint for fingerprint, track in self._tracks.items() if not track.on)
            self._tracks.pop(next(idle, next(iter(self._tracks))))

    def is_on(self, fingerprint: str) -> bool:
        track = self._tracks.get(fingerprint)
        return track is not None and track.on

    def released(self, now: float) -> list[tuple[str, int]]:
        """Fingerprints that have held nothing for a hold and a window: the brake is off again for these."""
        over = [
            (fingerprint, track.held)
            for fingerprint, track in self._tracks.items()
            if track.on and (now - track.last_held > HOLD_SECONDS + WINDOW_SECONDS or fingerprint in self.let_fail)
        ]
        for fingerprint, _ in over:
            self._tracks[fingerprint].held = 0
        return over

    @property
    def braked(self) -> int:
        return sum(track.on for track in self._tracks.values())
