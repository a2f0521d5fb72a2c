"""Writes index.html, an overview of all runs of a folder: newest first, with each lab's recovery times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from labs.errors import LabError
from labs.experiment import Experiment, all_experiments
from labs.report.chart import sparkline
from labs.report.page import render

CONCLUSIONS = """\
# The guide's six conclusions, filled in

The blanks of [GUIDE.md](GUIDE.md), filled in from real runs on the embedded stack. `scripts/lab run --guide` makes the
runs, `scripts/lab index --conclusions` prints this page from them. What every lab found: [RECORD.md](RECORD.md)."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in the overview."""

    folder: str
    report: dict[str, Any]
    spark: str


@dataclass(frozen=True, slots=True)
class LabRuns:
    """All runs of one lab, newest first; recovery times from oldest to newest."""

    name: str
    title: str
    runs: list[RunSummary]
    recovery: str
    last_seconds: float | None


def write(runs: Path) -> Path:
    labs = histories(runs)
    results = [lab.runs[0].report["verdict"] for lab in labs]
    page = runs / "index.html"
    page.write_text(render("gallery.html", labs=labs, results=results), encoding="utf-8")
    return page


def table(runs: Path) -> str:
    """The newest run of each lab in Markdown, in the order of `labs list`: for labs/RECORD.md."""
    newest = {lab.name: lab.runs[0].report for lab in histories(runs)}
    lines = [_line(newest[name]) for name in all_experiments() if name in newest]
    return "\n".join(["| lab | verdict | finding | seconds | commit | began |", "|---|---|---|---|---|---|", *lines])


def conclusions(runs: Path) -> str:
    """The guide's conclusions, filled in from the newest run of each lab: for labs/CONCLUSIONS.md."""
    newest = {lab.name: lab.runs[0].report for lab in histories(runs)}
    guided = [one for one in all_experiments().values() if one.guide]
    if missing := [one.name for one in guided if one.name not in newest]:
        raise LabError(f"no run of {', '.join(missing)} in {runs}: scripts/lab run --guide")
    return "\n\n".join([CONCLUSIONS, *(_conclusion(one, newest[one.name]) for one in guided)])


def _conclusion(one: Experiment, run: dict[str, Any]) -> str:
    assert one.guide is not None
    head = f"## {one.guide.section} Experiment {one.guide.number} ({one.guide.level}): {one.title}"
    commit = run["environment"]["commit"]
    by = f", run by {run['operator']}" if run["operator"] else ""
    ran = f"`scripts/lab run {one.name}`, began {str(run['began_at'])[:16]}, commit {commit}{by}: **{run['verdict']}**."
    filled = "\n".join(f"- {name}: {value}" for name, value in run["conclusion"].items())
    return f"{head}\n\n{ran}\n\n{filled}"


def _line(run: dict[str, Any]) -> str:
    finding = str(run["finding"]).replace("|", "\\|").replace("\n", " ")
    commit = run["environment"]["commit"]
    began = str(run["began_at"])[:16]
    return f"| `{run['experiment']}` | {run['verdict']} | {finding} | {run['seconds']:.0f} | {commit} | {began} |"


def histories(runs: Path) -> list[LabRuns]:
    found: dict[str, list[RunSummary]] = {}
    for run in _runs(runs):
        found.setdefault(run.report["experiment"], []).append(run)
    return [_history(name, each) for name, each in sorted(found.items())]


def _runs(runs: Path) -> Iterator[RunSummary]:
    """Newest first: a run's folder name starts with its time. Incomplete runs are left out."""
    for path in sorted(runs.glob("*/report.json"), reverse=True):
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        yield RunSummary(path.parent.name, report, Markup(sparkline(_backlog(path.parent))))


def _backlog(folder: Path) -> list[float]:
    path = folder / "timeline.ndjson"
    if not path.exists():
        return []
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        float(sum(line["status"].get(s, 0) for s in ("pending", "processing"))) for line in lines if "status" in line
    ]


def _history(name: str, runs: list[RunSummary]) -> LabRuns:
    times = [run.report["recovery_seconds"] for run in reversed(runs)]
    known = [float(seconds) for seconds in times if seconds is not None]
    return LabRuns(name, runs[0].report["title"], runs, Markup(sparkline(known)), runs[0].report["recovery_seconds"])
