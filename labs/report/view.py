"""Turns a record and its verdict into the content of a report, for the page and for the text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labs.alerts import fired
from labs.experiment import SETTINGS, Experiment
from labs.record import Record
from labs.report.life import Life, life
from labs.report.telling import LogLine, telling
from labs.verdict import LabVerdict
from outbox.policy.product import Server

USUAL = ("elasticsearch", "elasticsearch-8")
RESULTS = {"PASS": "OK", "FAIL": "FAIL", "INCONCLUSIVE": "INCONCLUSIVE"}


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class AlertLine:
    name: str
    expected: bool
    fired: bool
    first: float | None


@dataclass(frozen=True, slots=True)
class View:
    record: Record
    experiment: Experiment
    verdict: LabVerdict
    began: str
    figures: Sequence[Figure]
    conclusion: Sequence[tuple[str, str]]
    alerts: Sequence[AlertLine]
    lines: dict[str, list[LogLine]]
    life: Life | None
    settings: Sequence[tuple[str, str, bool]]
    environment: dict[str, str]
    command: str


def view(record: Record, experiment: Experiment, verdict: LabVerdict) -> View:
    violator = next((finding.event for finding in verdict.violated if finding.event), None)
    return View(
        record=record,
        experiment=experiment,
        verdict=verdict,
        began=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.about["began_at"])),
        figures=_figures(record),
        conclusion=_conclusion(record, experiment, verdict),
        alerts=_alerts(record, experiment),
        lines=telling(record),
        life=life(record, violator) if violator else None,
        settings=_settings(record),
        environment=dict(record.about["environment"]),
        command=f"scripts/lab run {experiment.name}{_product(record.server)} --seed {record.about['seed']}",
    )


def _product(server: Server) -> str:
    name = f"{server.product}-{server.number.partition('.')[0]}".rstrip("-")
    return "" if name in USUAL else f" --product {name}"


def _figures(record: Record) -> list[Figure]:
    statuses = record.statuses
    oldest = max((line.get("oldest", 0.0) for line in record.timeline), default=0.0)
    lost = sum(record.state(entry.id) == "missing" for entry in record.committed)
    where = "by their documents in the end" if record.is_stream else "rows in the table at the end"
    recovery = record.recovery_seconds
    return [
        Figure("Committed", f"{len(record.committed):,}", "events in the producer's ledger"),
        Figure("Done", f"{statuses['done']:,}", where),
        Figure("Failed", f"{statuses['failed']:,}", "rows in the table at the end"),
        Figure(
            "Lost",
            f"{lost:,}",
            "in the ledger, not in the index" if record.is_stream else "in the ledger, not in the table",
        ),
        Figure("Backlog", f"{record.peak('pending', 'processing'):,}", "most open events in one sample"),
        Figure("Oldest", f"{oldest:.1f} s", "oldest open event in one sample"),
        Figure(
            "Recovery", "never" if recovery is None else f"{recovery:.1f} s", "from the end of the fault to no backlog"
        ),
    ]


def _conclusion(record: Record, experiment: Experiment, verdict: LabVerdict) -> list[tuple[str, str]]:
    """The guide's blanks if the experiment is in the guide; similar answers for the others."""
    if experiment.guide is not None and verdict.findings:
        return list(experiment.guide.conclusion(record))
    bit = "not checked" if verdict.bit is None else "yes" if verdict.bit.ok else "no"
    good = sum(finding.ok for finding in verdict.findings)
    return [
        ("The fault took effect", f"{bit} ({verdict.bit.name}: {verdict.bit.observed})" if verdict.bit else bit),
        ("What must hold", f"{good} of {len(verdict.findings)} held"),
        ("Judgement", RESULTS[verdict.result]),
    ]


def _alerts(record: Record, experiment: Experiment) -> list[AlertLine]:
    spans: dict[str, list[list[Any]]] = record.about["alerts"]["spans"]
    rang = fired(spans)
    names = list(dict.fromkeys([*experiment.expected_alerts, *sorted(rang)]))
    first = {name: min(span[0] for span in spans[name] if span[2] == "firing") for name in rang}
    return [AlertLine(name, name in experiment.expected_alerts, name in rang, first.get(name)) for name in names]


def _settings(record: Record) -> list[tuple[str, str, bool]]:
    """Name, value, and whether this experiment set it."""
    found = record.settings
    return [(name, found[name], found[name] != SETTINGS.get(name)) for name in sorted(found)]
