"""Writes index.html, an overview of all runs of a folder: newest first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from labs.client import server_in
from labs.errors import LabError
from labs.experiment import Experiment, all_experiments
from labs.report.page import render
from outbox.policy.product import Product, Server

CONCLUSIONS = """\
# The guide's six conclusions, filled in

The blanks of [GUIDE.md](GUIDE.md), filled in from real runs on the embedded stack. `scripts/lab run --guide` makes the
runs, `scripts/lab index --conclusions` prints this page from them. What every lab found: [RECORD.md](RECORD.md)."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in the overview."""

    folder: str
    report: dict[str, Any]

    @property
    def server(self) -> Server:
        return server_in(self.report["environment"])


@dataclass(frozen=True, slots=True)
class LabRuns:
    """All runs of one lab, newest first."""

    name: str
    title: str
    runs: list[RunSummary]
    recovery_seconds: float | None


def write(runs: Path) -> Path:
    labs = histories(runs)
    results = [lab.runs[0].report["verdict"] for lab in labs]
    page = runs / "index.html"
    page.write_text(render("gallery.html", labs=labs, results=results), encoding="utf-8")
    return page


def table(runs: Path) -> str:
    """The newest run of each lab on each product in Markdown, in the order of `labs list`: for labs/RECORD.md."""
    lines = [_line(run) for run in _newest(runs)]
    head = ["| lab | verdict | finding | server | seconds | commit | began |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *lines])


def write_reports(runs: Path, to: Path) -> list[Path]:
    """The same runs' reports in Markdown: for labs/reports, which RECORD.md links to and the site shows."""
    to.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(runs / run.folder / "report.md", to / _file(run))) for run in _newest(runs)]


def _newest(runs: Path) -> list[RunSummary]:
    newest: dict[tuple[Product, str], RunSummary] = {}
    for lab in histories(runs):
        for run in reversed(lab.runs):
            newest[run.server.product, lab.name] = run
    return [newest[key] for key in product(Product, all_experiments()) if key in newest]


def _file(run: RunSummary) -> str:
    name = str(run.report["experiment"])
    return f"{name}.md" if run.server.product is Product.ELASTICSEARCH else f"{name}-{run.server.product}.md"


def conclusions(runs: Path) -> str:
    """The guide's conclusions, filled in from the newest runs, on Elasticsearch where there is one."""
    newest = {run.report["experiment"]: run.report for run in reversed(_newest(runs))}
    guided = [one for one in all_experiments().values() if one.guide]
    if missing := [one.name for one in guided if one.name not in newest]:
        raise LabError(f"no run of {', '.join(missing)} in {runs}: scripts/lab run --guide")
    return "\n\n".join([CONCLUSIONS, *(_conclusion(one, newest[one.name]) for one in guided)])


def _conclusion(one: Experiment, run: dict[str, Any]) -> str:
    assert one.guide is not None
    head = f"## {one.guide.section} Experiment {one.guide.number} ({one.guide.level}): {one.title}"
    commit = run["environment"]["commit"]
    by = f", run by {run['operator']}" if run["operator"] else ""
    at = f"on {server_in(run['environment'])}, began {str(run['began_at'])[:16]}"
    ran = f"`scripts/lab run {one.name}` {at}, commit {commit}{by}: **{run['verdict']}**."
    filled = "\n".join(f"- {name}: {value}" for name, value in run["conclusion"].items())
    return f"{head}\n\n{ran}\n\n{filled}"


def _line(summary: RunSummary) -> str:
    run = summary.report
    finding = str(run["finding"]).replace("|", "\\|").replace("\n", " ")
    commit = run["environment"]["commit"]
    began = str(run["began_at"])[:16]
    name = f"[`{run['experiment']}`](reports/{_file(summary)})"
    told = f"{name} | {run['verdict']} | {finding} | {summary.server} | {run['seconds']:.0f}"
    return f"| {told} | {commit} | {began} |"


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
        yield RunSummary(path.parent.name, report)


def _history(name: str, runs: list[RunSummary]) -> LabRuns:
    return LabRuns(name, runs[0].report["title"], runs, runs[0].report["recovery_seconds"])
