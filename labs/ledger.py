"""The producer's own record of what it committed, kept outside the database under test. It produces nothing."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, TextIO


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One event. `committed` is False if the reply to the commit was lost: the event may exist or not."""

    id: str
    entity_type: str
    entity_id: str
    op: str
    version: int
    digest: str  # of the document; empty for a delete
    at: float
    committed: bool = True

    @property
    def document(self) -> str:
        """The `_id` of its document."""
        return f"{self.entity_type}:{self.entity_id}"

    def unanswered(self) -> LedgerEntry:
        """The same entry, if the reply to its commit was lost."""
        return replace(self, committed=False)


def digest(document: Any) -> str:
    """A digest of the JSON value, not of its bytes: order and white space do not matter."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Ledger:
    """Every entry is on disk before the next one. Safe for many threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self.entries: list[LedgerEntry] = []

    def add(self, entry: LedgerEntry) -> None:
        with self._lock:
            self.entries.append(entry)
            self._file.write(json.dumps(asdict(entry)) + "\n")
            self._file.flush()

    @property
    def committed(self) -> int:
        with self._lock:
            return sum(entry.committed for entry in self.entries)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> list[LedgerEntry]:
    return list(_entries(path)) if path.exists() else []


def _entries(path: Path) -> Iterator[LedgerEntry]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield LedgerEntry(**json.loads(line))


def newest(entries: Iterable[LedgerEntry]) -> dict[str, LedgerEntry]:
    """The expected final state of each document: its highest version, in any order of writing."""
    last: dict[str, LedgerEntry] = {}
    for entry in entries:
        known = last.get(entry.document)
        if known is None or entry.version >= known.version:
            last[entry.document] = entry
    return last
