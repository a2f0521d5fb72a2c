"""Owns the raw history of one nemesis as it lies in its folder, and what follows from it. It judges nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any

from labs import ledger
from labs.ledger import Entry
from labs.worker import log_facts
from tests.nemesis.joined import REFRESH
from tests.nemesis.load import is_bad

ENDED = ("done", "discarded")


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if rows and isinstance(rows[0], list):  # out of an archive: the columns' names, then their cells
        return [dict(zip(rows[0], cells, strict=True)) for cells in rows[1:]]
    return rows


class Evidence:
    """Lazy: each file is read when a check first asks for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: dict[str, Any] = json.loads((folder / "about.json").read_text(encoding="utf-8"))

    @cached_property
    def attempted(self) -> list[Entry]:
        return ledger.read(self.folder / "ledger.ndjson")

    @cached_property
    def acknowledged(self) -> list[Entry]:
        return [entry for entry in self.attempted if entry.committed]

    @cached_property
    def recovered(self) -> list[Entry]:
        """Commits without an answer that had happened all the same."""
        return [entry for entry in self.attempted if not entry.committed and entry.id in self.known]

    @cached_property
    def committed(self) -> list[Entry]:
        return [*self.acknowledged, *self.recovered]

    @cached_property
    def events(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in self._named("events", "id")}

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        return self._named("steps", "event_id")

    def _named(self, name: str, column: str) -> list[dict[str, Any]]:
        """An archive tells an event by its place in the ledger."""
        rows = _lines(self.folder / f"{name}.ndjson")
        for row in rows:
            if isinstance(row[column], int):
                row[column] = self.attempted[row[column]].id
        return rows

    @cached_property
    def pruned(self) -> dict[str, str]:
        """Removed events and the status they had."""
        return {step["event_id"]: step["old_status"] for step in self.steps if step["new_status"] is None}

    @cached_property
    def known(self) -> set[str]:
        """Every event that the database has ever had: those that are there, and those that took a step."""
        return self.events.keys() | {step["event_id"] for step in self.steps}

    @cached_property
    def documents(self) -> dict[str, dict[str, Any]]:
        return {row["_id"]: row for row in _lines(self.folder / "documents.ndjson")}

    @cached_property
    def view(self) -> dict[str, str]:
        """Each joined document that the view has in the end, with the digest of its content."""
        return {row["_id"]: row["digest"] for row in _lines(self.folder / "view.ndjson")}

    @cached_property
    def seen(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "seen.ndjson")

    @cached_property
    def timeline(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "timeline.ndjson")

    @cached_property
    def acts(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "acts.ndjson")

    @cached_property
    def neighbours(self) -> dict[str, Any]:
        """What the lane of the neighbours left; empty where there was none."""
        path = self.folder / "neighbours.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    @cached_property
    def innocents(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "innocents.ndjson")

    def rows(self, name: str) -> list[dict[str, Any]]:
        return _lines(self.folder / f"{name}.ndjson")

    @cached_property
    def logs(self) -> list[Path]:
        return sorted((self.folder / "logs").glob("*"))

    def said(self, event: str) -> list[dict[str, Any]]:
        return [fact for log in self.logs for fact in log_facts(log) if fact.get("event") == event]

    # What follows

    def state(self, event_id: str) -> str:
        """What became of an event: its status, `pruned` if it was removed when it had ended, else `missing`."""
        if event_id in self.events:
            return str(self.events[event_id]["status"])
        return "pruned" if self.pruned.get(event_id) in ENDED else "missing"

    @cached_property
    def newest(self) -> dict[str, Entry]:
        return ledger.newest(self.committed)

    @cached_property
    def joined(self) -> set[str]:
        """Documents that refreshes keep. Their events say nothing about versions or content: the view does."""
        return {entry.document for entry in self.committed if entry.op == REFRESH}

    @cached_property
    def refusable(self) -> dict[str, int]:
        """The highest version of a document that the mapping refuses: a lookup of an older event may meet it."""
        highest: dict[str, int] = defaultdict(int)
        for entry in self.committed:
            if is_bad(entry.id):
                highest[entry.document] = max(highest[entry.document], entry.version)
        return highest

    @cached_property
    def by_id(self) -> dict[str, Entry]:
        return {entry.id: entry for entry in self.attempted}

    def may_be_refused(self, event_id: str) -> bool:
        entry = self.by_id.get(event_id)
        return entry is not None and entry.op != REFRESH and entry.version <= self.refusable.get(entry.document, 0)

    @cached_property
    def deletes_done(self) -> dict[str, list[tuple[float, int]]]:
        """When each delete of a document was done for the last time, with its version."""
        done: dict[str, float] = {}
        for step in self.steps:
            if step["new_status"] == "done":
                done[step["event_id"]] = float(step["at"])
        found: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for entry in self.committed:
            if entry.op == "delete" and entry.id in done:
                found[entry.document].append((done[entry.id], entry.version))
        return found
