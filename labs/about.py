"""Writes record.json: what was run, how it went, on which machine. It contains no secret and no address."""

from __future__ import annotations

import json
import platform
import subprocess
from typing import TYPE_CHECKING, Any

import psycopg

from labs.worker import ROOT
from outbox.embedded.pins import KAFKA_VERSION

if TYPE_CHECKING:
    from labs.runner import Run

# What a run depends on: an uncommitted page or test does not matter for its record.
RUN = ("outbox", "sql", "labs", "deploy/prometheus", "requirements", ":!*.md")
LEFT_OUT = (
    "DATABASE_URL",
    "KAFKA_BOOTSTRAP_SERVERS",
    "KAFKA_CONNECT_URL",
    "ELASTIC_URL",
    "ELASTIC_API_KEY",
    "ELASTIC_PASSWORD",
    "OUTBOX_WEBHOOK_SECRET",
)


def write_made(run: Run) -> None:
    """Written before anything is created: what `labs clean` may remove if this run is killed."""
    databases = [run.stage.database, run.stage.copy, run.servers.template]
    made = {"experiment": run.experiment.name, "databases": databases, "index": run.stage.index}
    (run.folder / "made.json").write_text(json.dumps(made), encoding="utf-8")


def write(run: Run) -> None:
    stage, story = run.stage, run.stage.story
    settings = stage.settings() if hasattr(stage, "table") else {}
    about: dict[str, Any] = {
        "experiment": run.experiment.name,
        "run": run.folder.name,
        "operator": run.operator,
        "seed": run.seed,
        "began_at": story.began_at,
        "seconds": round(story.now(), 2),
        "phases": story.phases,
        "markers": story.markers,
        "notes": story.notes,
        "steps": story.steps,
        "snapshots": story.snapshots,
        "problems": run.problems,
        "exit_codes": run.exit_codes,
        "links": {name: dict(link.counts) for name, link in stage.links.items()},
        "alerts": run.alerts.as_json(),
        "settings": {name: value for name, value in settings.items() if name not in LEFT_OUT},
        "environment": _environment(run),
        "kafka": run.experiment.kafka,
        "made": {"database": stage.database, "index": stage.index, "kept": run.keep},
    }
    (run.folder / "record.json").write_text(json.dumps(about, indent=1, default=str), encoding="utf-8")


def _environment(run: Run) -> dict[str, str]:
    try:
        versions = run.servers.versions()
    except psycopg.Error:
        versions = {run.servers.server.product.value: run.servers.server.number}
    kafka = {"kafka": KAFKA_VERSION} if run.experiment.kafka else {}
    return {
        **versions,
        **kafka,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "commit": commit(),
        "code": "this checkout" if run.code is None else "a changed copy",
    }


def commit() -> str:
    """The commit of this checkout, and whether anything that a lab runs differs from it."""
    try:
        stands = _git("rev-parse", "--short", "HEAD")
        differs = _git("status", "--porcelain", "--untracked-files=no", "--", *RUN)
    except OSError:
        return "unknown"
    return f"{stands}-dirty" if stands and differs else stands or "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=False, cwd=ROOT, capture_output=True, text=True).stdout.strip()
