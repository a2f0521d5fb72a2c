"""Owns what is noted of one act: what was done, to whom, when, and whether it bit, by a measurement and not by hope."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.nemesis.schedule import PlannedAct


@dataclass(frozen=True, slots=True)
class Bite:
    """`bit` only where the measured effect was there; `told` says which."""

    bit: bool
    told: str
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DoneAct:
    """One act of the history."""

    number: int
    lane: str
    kind: str
    victim: str
    began: float
    ended: float
    bit: bool
    told: str
    numbers: dict[str, float]


class ActHistory:
    """acts.ndjson, line by line as it happens; many threads write."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / "acts.ndjson").open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self.acts: list[DoneAct] = []

    def add(self, act: PlannedAct, victim: str, began: float, bite: Bite) -> DoneAct:
        done = DoneAct(act.number, act.lane, act.kind, victim, began, time.time(), bite.bit, bite.told, bite.numbers)
        with self._lock:
            self.acts.append(done)
            self._file.write(json.dumps(asdict(done)) + "\n")
            self._file.flush()
        return done

    def bites(self, kind: str) -> int:
        return sum(act.bit for act in list(self.acts) if act.kind == kind)

    def times(self, kind: str) -> int:
        return sum(act.kind == kind for act in list(self.acts))

    def total(self, kind: str, number: str) -> float:
        return sum(act.numbers.get(number, 0) for act in list(self.acts) if act.kind == kind)

    def close(self) -> None:
        self._file.close()


def as_json(acts: list[DoneAct]) -> list[dict[str, Any]]:
    return [asdict(act) for act in acts]
