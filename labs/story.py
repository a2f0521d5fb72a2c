"""What a run records about itself: clock, markers, notes, commands and snapshots. Plain data."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Story:
    markers: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    snapshots: dict[str, Any] = field(default_factory=dict)
    phases: list[dict[str, Any]] = field(default_factory=list)
    began_at: float = field(default_factory=time.time)
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        """Seconds since the lab began."""
        return time.monotonic() - self._began

    def mark(self, text: str, kind: str = "act") -> float:
        """A marker on the timeline; kind is act, fault, heal, kill or start."""
        at = round(self.now(), 3)
        with self._lock:
            self.markers.append({"t": at, "text": text, "kind": kind})
        return at

    def begin(self, phase: str) -> None:
        self.end()
        self.phases.append({"name": phase, "began": round(self.now(), 3), "ended": None})

    def end(self) -> None:
        if self.phases and self.phases[-1]["ended"] is None:
            self.phases[-1]["ended"] = round(self.now(), 3)

    @property
    def phase(self) -> str:
        return str(self.phases[-1]["name"]) if self.phases else "preparing"
