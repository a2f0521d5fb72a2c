"""The raw data of a run, as stored in its folder. Checks and reports use only this, so a run can be evaluated again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from labs.client import server_in
from labs.history import History
from labs.ledger import LedgerEntry
from labs.recorder import samples
from outbox.policy.product import Server


class Record(History):
    ABOUT = "record.json"
    ENDS = frozenset({"done", "failed", "discarded", "pruned"})

    @property
    def name(self) -> str:
        return str(self.about["experiment"])

    @property
    def server(self) -> Server:
        """The search server that it ran on."""
        return server_in(self.about["environment"])

    @property
    def notes(self) -> dict[str, Any]:
        return dict(self.about["notes"])

    @property
    def settings(self) -> dict[str, str]:
        return dict(self.about["settings"])

    def _as_found(self, entry: LedgerEntry) -> LedgerEntry:
        """Its reply was lost, and with it the version that was drawn: the row has it."""
        row = self.events.get(entry.id)
        return replace(entry, op=row["op"], version=row["event_version"], digest=row["digest"]) if row else entry

    # With Kafka as the source an event that succeeded has no row: its document says what became of it.

    @property
    def is_stream(self) -> bool:
        return bool(self.about.get("kafka"))

    @cached_property
    def known(self) -> set[str]:
        return super().known | {row["id"] for row in self.rows("log")}

    def state(self, event_id: str) -> str:
        found = super().state(event_id)
        if found != "missing" or not self.is_stream or event_id not in self.by_id:
            return found
        entry = self.by_id[event_id]
        document, last = self.documents.get(entry.document, {}), self.newest[entry.document]
        if document.get("found"):
            return "done" if document["version"] >= entry.version else "missing"
        return "done" if last.op == "delete" else "missing"

    @cached_property
    def audit(self) -> list[dict[str, Any]]:
        return self.rows("audit")

    @cached_property
    def unsettled(self) -> set[str]:
        """Documents with an event that is failed, discarded or open."""
        return {entry.document for entry in self.committed if self.state(entry.id) not in ("done", "pruned")}

    def sightings(self) -> Iterator[tuple[Hashable, Mapping[str, int]]]:
        return ((None, line.get("canaries", {})) for line in self.timeline)

    @property
    def counted(self) -> tuple[float, int]:
        done = sum(step["old_status"] == "processing" and step["new_status"] == "done" for step in self.steps)
        return self.total("outbox_processed_total"), done

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
        if self.is_stream:
            return Counter(self.state(entry.id) for entry in self.committed)
        return Counter(str(row["status"]) for row in self.events.values())

    def peak(self, *states: str) -> int:
        """The most rows that were in these states in one sample."""
        return max((sum(line.get("status", {}).get(s, 0) for s in states) for line in self.timeline), default=0)


def _metrics(line: dict[str, Any], label: str) -> dict[str, float]:
    return dict(line["workers"].get(label, {}).get("m") or {})
