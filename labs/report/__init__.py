"""Writes the report of a run: report.html, report.md, report.json, the command to repeat it, checksums."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from labs.experiment import Experiment
from labs.record import Record
from labs.report import manifest
from labs.report.markdown import markdown
from labs.report.page import page
from labs.report.view import View, view
from labs.verdict import LabVerdict

__all__ = ["write"]


def write(record: Record, experiment: Experiment, verdict: LabVerdict) -> Path:
    """Returns the path of the page. Everything in it comes from the record, so it can be written again at any time."""
    seen = view(record, experiment, verdict)
    folder = record.folder
    (folder / "report.json").write_text(json.dumps(_summary(seen), indent=1, default=str), encoding="utf-8")
    (folder / "report.md").write_text(markdown(seen), encoding="utf-8")
    (folder / "report.html").write_text(page(seen), encoding="utf-8")
    script = folder / "reproduce.sh"
    script.write_text(
        f"#!/bin/sh\n# From the root of a checkout of {seen.environment['commit']}.\n{seen.command}\n", "utf-8"
    )
    script.chmod(0o755)
    manifest.write(folder)
    return folder / "report.html"


def _summary(seen: View) -> dict[str, object]:
    return {
        "experiment": seen.experiment.name,
        "title": seen.experiment.title,
        "run": seen.record.about["run"],
        "verdict": seen.verdict.result,
        "finding": seen.verdict.sentence,
        "operator": seen.record.about["operator"],
        "began_at": seen.began,
        "seconds": seen.record.seconds,
        "recovery_seconds": seen.record.recovery_seconds,
        "figures": {figure.name: figure.value for figure in seen.figures},
        "bit": asdict(seen.verdict.bit) if seen.verdict.bit else None,
        "findings": [asdict(finding) for finding in seen.verdict.findings],
        "conclusion": dict(seen.conclusion),
        "alerts": [asdict(alert) for alert in seen.alerts],
        "seed": seen.record.about["seed"],
        "environment": seen.environment,
        "command": seen.command,
    }
