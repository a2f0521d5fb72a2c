"""What a run of a lab or of the nemesis left in its folder, as far as both have it. It evaluates nothing."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from labs import ledger
from labs.ledger import LedgerEntry
from labs.worker import log_facts


def lines_of(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if rows and isinstance(rows[0], list):  # out of an archive: the columns' names, then their cells
        return [dict(zip(rows[0], cells, strict=True)) for cells in rows[1:]]
    return rows


class History(ABC):
    """Lazy: each file is read at its first use. What only one of both can say is for `Record` and `Evidence` to say."""

    ABOUT: ClassVar[str]
    ENDS: ClassVar[frozenset[str]]  # the states in which every committed event must be in the end

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: dict[str, Any] = json.loads((folder / self.ABOUT).read_text(encoding="utf-8"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return lines_of(self.folder / f"{name}.ndjson")

    # Producers

    @cached_property
    def attempted(self) -> list[LedgerEntry]:
        return ledger.read(self.folder / "ledger.ndjson")

    @cached_property
    def by_id(self) -> dict[str, LedgerEntry]:
        return {entry.id: entry for entry in self.attempted}

    @cached_property
    def committed(self) -> list[LedgerEntry]:
        """A commit without a reply counts if, and only if, its row has been in the database."""
        return [e if e.committed else self._as_found(e) for e in self.attempted if e.committed or e.id in self.known]

    def _as_found(self, entry: LedgerEntry) -> LedgerEntry:
        return entry

    @cached_property
    def newest(self) -> dict[str, LedgerEntry]:
        return ledger.newest(self.committed)

    # The database

    @cached_property
    def events(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in self._of_events("events", "id")}

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """In the order in which they happened: a row's steps are recorded under its lock."""
        return self._of_events("steps", "event_id")

    def _of_events(self, name: str, column: str) -> list[dict[str, Any]]:
        """An archive tells an event by its place in the ledger."""
        rows = self.rows(name)
        for row in rows:
            if isinstance(row[column], int):
                row[column] = self.attempted[row[column]].id
        return rows

    @cached_property
    def known(self) -> set[str]:
        """Every event that the database has ever had: those that are there, and those that took a step."""
        return self.events.keys() | {step["event_id"] for step in self.steps}

    @cached_property
    def pruned(self) -> dict[str, str]:
        """Removed events and the status they had."""
        return {step["event_id"]: step["old_status"] for step in self.steps if step["new_status"] is None}

    def state(self, event_id: str) -> str:
        """What became of an event: its status, `pruned` if it was removed when it had ended, else `missing`."""
        if event_id in self.events:
            return str(self.events[event_id]["status"])
        return "pruned" if self.pruned.get(event_id) in ("done", "discarded") else "missing"

    # The index

    @cached_property
    def documents(self) -> dict[str, dict[str, Any]]:
        return {row["_id"]: row for row in self.rows("documents")}

    @cached_property
    def unsettled(self) -> set[str]:
        """Documents that need not be their newest commit. None, unless events may stay failed."""
        return set()

    @abstractmethod
    def sightings(self) -> Iterator[tuple[Hashable, Mapping[str, int]]]:
        """Versions of documents (0: absent) seen while it ran, in order. They may fall only from one life of the index
        to the next."""

    # The daemons

    @cached_property
    def timeline(self) -> list[dict[str, Any]]:
        return self.rows("timeline")

    @cached_property
    def log_files(self) -> list[Path]:
        return sorted((self.folder / "logs").glob("*"))

    @cached_property
    def logs(self) -> list[dict[str, Any]]:
        """The lines of all daemons by time, each with its `log`."""
        lines = [{**fact, "log": path.stem} for path in self.log_files for fact in log_facts(path)]
        return sorted(lines, key=lambda line: str(line.get("ts", "")))

    def said(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Log lines of one event (a prefix is enough) with these fields."""
        return [
            line
            for line in self.logs
            if str(line.get("event", "")).startswith(event) and all(line.get(k) == v for k, v in fields.items())
        ]

    @property
    @abstractmethod
    def counted(self) -> tuple[float, int]:
        """Events done while every daemon ran to its end: by their metrics, and by the steps."""

    def clean_codes(self, worker: str) -> tuple[int, ...]:
        """What a worker may exit with after SIGTERM."""
        return (0,)
