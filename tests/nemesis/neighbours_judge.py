"""Judges the lane of the neighbours: innocents whole, poison bitten, p99 beside it under twice the calm one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.result import percentile
from labs.experiment import CheckResult

CALM, POISON, AFTER = "calm", "poison", "calm again"
MOST = 2.0  # times the calm p99
# A calm p99 is 0.16 s on two cores that have nothing else to do. A quicker machine must not make the limit one that a
# collection of garbage breaks.
FLOOR_SECONDS = 0.1
# Where even the calm is slower than this, something else had the machine: whatever is twice of that shows nothing.
BUSY_SECONDS = 1.0
# In fewer a p99 is the slowest or the second slowest of all: a hiccup of the machine, not a figure.
LEAST_INNOCENTS = 1_000
SHARE = 99


@dataclass(frozen=True, slots=True)
class Pace:
    """The latencies of one phase, from `created_at` to `processed_at`, both by the database's clock."""

    innocents: int
    p50: float
    p99: float
    most: float

    def told(self) -> str:
        return f"{self.innocents} innocents, p50 {self.p50:.3f} s, p99 {self.p99:.3f} s, at most {self.most:.2f} s"


@dataclass(frozen=True, slots=True)
class Poisoned:
    """One kind of poison: rows or acts, and how many of them bit by what the table showed."""

    kind: str
    made: int
    bit: int
    least: int
    meant: str
    states: str


@dataclass(frozen=True, slots=True)
class NeighbourLane:
    seconds: float
    workers: int
    rate: float
    calm: Pace
    poison: Pace
    poisons: list[Poisoned]
    left_out: list[str]
    findings: list[CheckResult]

    @property
    def doubts(self) -> list[str]:
        busy = min(self.calm.innocents, self.poison.innocents) >= LEAST_INNOCENTS and self.calm.p99 > BUSY_SECONDS
        told = f"the calm itself had a p99 of {self.calm.p99:.3f} s: the machine was too busy to judge neighbours"
        return [told] * busy + [
            f"poison {one.kind} bit {one.bit} times, {one.least} were needed"
            for one in self.poisons
            if one.bit < one.least
        ]


def judged(told: dict[str, Any], innocents: Sequence[dict[str, Any]]) -> NeighbourLane:
    calm = _pace([row for name in (CALM, AFTER) for row in _of(name, told, innocents)])
    beside = _pace(_of(POISON, told, innocents))
    is_long = min(calm.innocents, beside.innocents) >= LEAST_INNOCENTS
    poisons = [_poisoned(kind, found, is_long) for kind, found in told["poison"].items()]
    findings = [_whole(told, innocents), _quick(calm, beside, is_long)]
    shape = float(told["asked_seconds"]), int(told["workers"]), float(told["rate"])
    return NeighbourLane(*shape, calm, beside, poisons, list(told["left_out"]), findings)


def _of(phase: str, told: dict[str, Any], innocents: Sequence[dict[str, Any]]) -> list[float]:
    """One that was never done counts as the whole phase: it is no quick one."""
    spans = [(float(one["began"]), float(one["ended"])) for one in told["phases"] if one["name"] == phase]
    return [
        float(row["latency"]) if row["latency"] is not None else ended - began
        for row in innocents
        for began, ended in spans
        if began <= row["created"] < ended
    ]


def _pace(latencies: list[float]) -> Pace:
    if not latencies:
        return Pace(0, 0.0, 0.0, 0.0)
    return Pace(len(latencies), percentile(latencies, 0.5), percentile(latencies, SHARE / 100), max(latencies))


def _poisoned(kind: str, found: dict[str, Any], is_long: bool) -> Poisoned:
    """A third of them: what came last has had no time to show, and a lock is not always quick enough."""
    made, states = int(found["made"]), ", ".join(f"{n} {state}" for state, n in sorted(found["states"].items()))
    return Poisoned(kind, made, int(found["bit"]), max(1, made // 3 if is_long else 1), str(found["meant"]), states)


def _whole(told: dict[str, Any], innocents: Sequence[dict[str, Any]]) -> CheckResult:
    open_ = sum(row["status"] in ("pending", "processing") for row in innocents)
    failed = sum(row["status"] not in ("pending", "processing", "done") for row in innocents)
    lost, wrong, ended = int(told["committed"]) - len(innocents), len(told["wrong"]), len(told["ended"])
    seen = (
        f"{told['committed']} innocents, {open_} not done, {failed} failed, {lost} gone;"
        f" {told['documents']} documents, {wrong} wrong; {ended} of {told['workers']} daemons ended"
    )
    ok = bool(innocents) and not any((open_, failed, lost, wrong, ended))
    return CheckResult("neighbours: whole", "every innocent done, every document right", seen, ok)


def _quick(calm: Pace, beside: Pace, is_long: bool) -> CheckResult:
    limit = MOST * max(calm.p99, FLOOR_SECONDS)
    expected = f"p99 under {limit:.3f} s"
    seen = f"calm: {calm.told()}; beside poison: {beside.told()}"
    if not is_long:
        return CheckResult("neighbours: in time", "not judged", f"{seen}; too few for a p99: not judged", True)
    if calm.p99 > BUSY_SECONDS:
        return CheckResult("neighbours: in time", "not judged", f"{seen}; too slow a calm: not judged", True)
    told = f"{seen}; the limit is {limit:.3f} s"
    return CheckResult("neighbours: in time", expected, told, beside.p99 < limit)
