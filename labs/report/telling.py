"""Chooses a few log lines that show what happened in each phase. The complete logs are beside the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from labs.checks import when
from labs.record import Record

MOST = 6
ROUTINE = {"batch.claimed", "batch.settled", "limit.changed", "library.warned"}
RANK = {"error": 0, "critical": 0, "text": 0, "warning": 1, "info": 2}
LEFT_OUT = {"ts", "level", "event", "projection", "worker", "log", "batch", "trace_id"}


@dataclass(frozen=True, slots=True)
class LogLine:
    t: float
    log: str
    level: str
    event: str
    rest: str
    times: int


def telling(record: Record) -> dict[str, list[LogLine]]:
    """Up to six lines per phase: one of each kind, the most severe kinds first, sorted by time."""
    phases = {phase["name"]: (phase["began"], phase["ended"] or record.seconds) for phase in record.about["phases"]}
    lines = [line for line in map(_at(record), record.logs) if line is not None]
    return {name: _choose(lines, *span) for name, span in phases.items() if _choose(lines, *span)}


def _at(record: Record) -> Callable[[dict[str, Any]], LogLine | None]:
    began = float(record.about["began_at"])

    def read(line: dict[str, Any]) -> LogLine | None:
        event = str(line.get("event") or line.get("text", ""))[:160]
        if not event or event in ROUTINE or "ts" not in line:
            return None
        rest = ", ".join(f"{k}={v}" for k, v in line.items() if k not in LEFT_OUT and v not in (None, ""))
        return LogLine(when(line["ts"]) - began, line["log"], str(line.get("level")), event, rest[:240], 1)

    return read


def _choose(lines: list[LogLine], began: float, ended: float) -> list[LogLine]:
    kinds: dict[tuple[str, str], list[LogLine]] = {}
    for line in lines:
        if began <= line.t < ended:
            kinds.setdefault((line.event, line.log), []).append(line)
    first = [replace(found[0], times=len(found)) for found in kinds.values()]
    gravest = sorted(first, key=lambda line: (RANK.get(line.level, 2), line.t))[:MOST]
    return sorted(gravest, key=lambda line: line.t)
