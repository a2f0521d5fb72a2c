"""The raw data of a run, as stored in its folder. Checks and reports use only this, so a run can be evaluated again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from labs import ledger
from labs.ledger import Entry
from labs.recorder import samples
from labs.worker import log_facts


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


class Record:
    """Lazy: each file is read at its first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        return str(self.about["experiment"])

    @property
    def notes(self) -> dict[str, Any]:
        return dict(self.about["notes"])

    @property
    def settings(self) -> dict[str, str]:
        return dict(self.about["settings"])

    @cached_property
    def ledger(self) -> list[Entry]:
        """What was committed. An insert without a reply counts if, and only if, its row exists."""
        return [entry for entry in map(self._resolved, ledger.read(self.folder / "ledger.ndjson")) if entry is not None]

    def _resolved(self, entry: Entry) -> Entry | None:
        if entry.committed:
            return entry
        row = self.events.get(entry.id)
        if row is None:
            return None
        return Entry(
            entry.id, entry.entity_type, entry.entity_id, row["op"], row["event_version"], row["digest"], entry.at
        )

    @cached_property
    def events(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in _lines(self.folder / "events.ndjson")}

    @cached_property
    def documents(self) -> dict[str, dict[str, Any]]:
        return {row["_id"]: row for row in _lines(self.folder / "documents.ndjson")}

    @cached_property
    def transitions(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "transitions.ndjson")

    @cached_property
    def timeline(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "timeline.ndjson")

    @cached_property
    def audit(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "audit.ndjson")

    def rows(self, name: str) -> list[dict[str, Any]]:
        """attempts, replays, deliveries, leases, workers."""
        return _lines(self.folder / f"{name}.ndjson")

    # Phases

    def phase(self, name: str) -> tuple[float, float] | None:
        """Begin and end of the phase; None if the run did not get there."""
        for phase in self.about["phases"]:
            if phase["name"] == name:
                return float(phase["began"]), float(phase["ended"] or self.seconds)
        return None

    @property
    def seconds(self) -> float:
        return float(self.about["seconds"])

    def during(self, phase: str) -> Iterator[dict[str, Any]]:
        return (line for line in self.timeline if line["phase"] == phase)

    @property
    def recovery_seconds(self) -> float | None:
        """From the end of the fault until the backlog was empty; None if it never was."""
        return self.notes.get("recovery_seconds")

    @property
    def fault_seconds(self) -> float:
        """From its first marker until everything was restored."""
        began = [marker["t"] for marker in self.about["markers"] if marker["kind"] in ("fault", "kill")]
        ended = [marker["t"] for marker in self.about["markers"] if marker["text"] == "restored"]
        return float(ended[-1] - began[0]) if began and ended else 0.0

    # Logs

    @cached_property
    def logs(self) -> list[dict[str, Any]]:
        """The lines of all daemons by time, each with its `log`."""
        lines = [{**fact, "log": path.stem} for path in self.log_files for fact in log_facts(path)]
        return sorted(lines, key=lambda line: str(line.get("ts", "")))

    @property
    def log_files(self) -> list[Path]:
        return sorted((self.folder / "logs").glob("*.ndjson"))

    def said(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Log lines of one event (a prefix is enough) with these fields."""
        return [
            line
            for line in self.logs
            if str(line.get("event", "")).startswith(event) and all(line.get(k) == v for k, v in fields.items())
        ]

    # Metrics

    def total(self, metric: str, phase: str | None = None) -> float:
        """The sum of a counter over all daemons and their restarts: each one's last value, or its growth in a phase."""
        lines = list(self.timeline if phase is None else self.during(phase))
        return sum(self._growth(lines, label, metric, whole=phase is None) for label in self._labels(lines))

    def _labels(self, lines: list[dict[str, Any]]) -> list[str]:
        return sorted({label for line in lines for label in line["workers"]})

    def _growth(self, lines: list[dict[str, Any]], label: str, metric: str, *, whole: bool) -> float:
        seen = [_metrics(line, label).get(metric) for line in lines]
        values = [value for value in seen if value is not None]
        if not values:
            return 0.0
        return values[-1] if whole else values[-1] - values[0]

    def most(self, metric: str, phase: str | None = None) -> float:
        """The highest value that a gauge had on any page, or on any of a phase."""
        lines = self.timeline if phase is None else self.during(phase)
        return max((_metrics(line, label).get(metric, 0.0) for line in lines for label in line["workers"]), default=0.0)

    def least(self, metric: str, phase: str) -> float | None:
        seen = [_metrics(line, label).get(metric) for line in self.during(phase) for label in line["workers"]]
        return min((value for value in seen if value is not None), default=None)

    def histogram(self, metric: str, moment: str) -> dict[float, float]:
        """Cumulative counts by upper bound, summed over the daemons, from the pages kept at a moment."""
        summed: dict[float, float] = {}
        for page in (self.folder / "metrics").glob(f"*-{moment}.prom"):
            for name, value in samples(page.read_text(encoding="utf-8"), buckets=True).items():
                if name.startswith(f"{metric}_bucket{{"):
                    bound = float(name.split("le=")[1].rstrip("}"))
                    summed[bound] = summed.get(bound, 0.0) + value
        return dict(sorted(summed.items()))

    # The table

    @property
    def statuses(self) -> Counter[str]:
        return Counter(str(row["status"]) for row in self.events.values())

    def peak(self, *states: str) -> int:
        """The most rows that were in these states in one sample."""
        return max((sum(line.get("status", {}).get(s, 0) for s in states) for line in self.timeline), default=0)


def _metrics(line: dict[str, Any], label: str) -> dict[str, float]:
    return dict(line["workers"].get(label, {}).get("m") or {})
