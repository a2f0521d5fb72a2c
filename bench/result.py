"""The result of a benchmark: rounds, median, spread, bar and goal; printed and written as JSON."""

import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from outbox import __version__

RESULTS = Path("build/bench")
TOOLS = ("psycopg", "orjson", "elastic-transport")


class CannotRun(Exception):
    """A server or tool that a benchmark needs is missing: reported, skipped, exit 3."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """What must hold (`first`) and what we want (`goal`). `most`: smaller is better."""

    name: str
    first: float
    goal: float
    most: bool = False

    def verdict(self, value: float) -> str:
        def holds(limit: float) -> bool:
            return value <= limit if self.most else value >= limit

        return "goal reached" if holds(self.goal) else "passed" if holds(self.first) else "MISSED"


@dataclass(slots=True)
class Measured:
    """One measured quantity over the rounds."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Half the range as a share of the median: the noise."""
        return (max(self.values) - min(self.values)) / 2 / self.median if self.median else 0.0

    def line(self) -> str:
        return f"{self.name:<44} {self.median:>12,.2f} {self.unit:<12} ± {self.spread:.0%} of {len(self.values)}"


@dataclass(slots=True)
class BenchmarkResult:
    benchmark: str
    smoke: bool
    series: list[Measured] = field(default_factory=list)
    bars: list[tuple[Threshold, float]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    documents: str = ""  # which ones: their cost for the search server decides a ratio more than anything else
    notes: list[str] = field(default_factory=list)
    servers: dict[str, str] = field(default_factory=dict)  # with versions; its own instead of the shared ones
    turned: dict[str, Any] = field(default_factory=dict)  # by --set, --rounds, --product; empty = the defaults
    seconds: float = 0.0  # the whole run
    _judged_by: dict[str, Measured] = field(default_factory=dict)  # name of a bar -> the rounds behind its value

    def add(self, name: str, unit: str, value: float) -> Measured:
        series = next((s for s in self.series if s.name == name), None)
        if series is None:
            series = Measured(name, unit)
            self.series.append(series)
        series.values.append(value)
        return series

    def of(self, name: str) -> Measured:
        return next(s for s in self.series if s.name == name)

    def median(self, name: str) -> float:
        return self.of(name).median

    def divide(self, name: str, upper: str, lower: str) -> str:
        """A series of ratios, round by round, and its name: both sides of a round saw the same machine."""
        for above, below in zip(self.of(upper).values, self.of(lower).values, strict=True):
            self.add(name, "", above / below if below else 0.0)  # nothing measured: a smoke run, too short for it
        return name

    def judge(self, bar: Threshold, value: float | str) -> None:
        """By a figure, or by the name of a series: its median, reported with its spread."""
        if isinstance(value, str):
            self._judged_by[bar.name] = self.of(value)
            value = self.median(value)
        self.bars.append((bar, value))

    def _noise(self, bar: Threshold) -> dict[str, Any]:
        series = self._judged_by.get(bar.name)
        return {"spread": series.spread, "rounds": len(series.values)} if series else {}

    @property
    def passed(self) -> bool:
        """A smoke run shows that the benchmark works, not how fast anything is."""
        return self.smoke or all(bar.verdict(value) != "MISSED" for bar, value in self.bars)

    def show(self) -> None:
        print(f"\n{self.benchmark}{'  (smoke: the figures mean nothing)' if self.smoke else ''}")
        if self.servers:
            print("  on " + ", ".join(f"{name} {version}" for name, version in self.servers.items()))
        for series in self.series:
            print("  " + series.line())
        for bar, value in self.bars:
            limit = "at most" if bar.most else "at least"
            judged = f"{limit} {bar.first:g}, goal {bar.goal:g}: {bar.verdict(value)}"
            noise = "± {spread:.0%} of {rounds}".format(**found) if (found := self._noise(bar)) else ""
            print(f"  {bar.name:<44} {value:>12.3f} {noise:<12} {judged}")
        for note in self.notes:
            print(f"  {note}")

    def write(self, versions: Mapping[str, str]) -> Path:
        RESULTS.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = RESULTS / f"{self.benchmark}{'-smoke' if self.smoke else ''}-{stamp}.json"
        path.write_text(json.dumps({**self._about(), "versions": dict(versions), **self._figures()}, indent=2) + "\n")
        print(f"  written to {path}")
        return path

    def _about(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "smoke": self.smoke,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "version": __version__,
            "turned": self.turned,
            "seconds": round(self.seconds),
            "documents": self.documents,
            "settings": self.settings,
            "notes": self.notes,
        }

    def _figures(self) -> dict[str, Any]:
        series = [{**asdict(s), "median": s.median, "spread": s.spread} for s in self.series]
        bars = [
            {**asdict(bar), "value": value, **self._noise(bar), "verdict": bar.verdict(value)}
            for bar, value in self.bars
        ]
        return {"series": series, "bars": bars}


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]  # a record names a commit, not a tag near it
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def versions(servers: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    tools = {name: version(name) for name in (*TOOLS, *more)}
    return {"python": platform.python_version(), "machine": f"{platform.machine()}", **tools, **servers}


def progress(text: str) -> None:
    print(f"  .. {text}", file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
