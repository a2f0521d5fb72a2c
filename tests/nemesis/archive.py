"""Packs a history small enough for a repository, and whole: unpacked, it is judged again like the folder of the run."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from labs.worker import ROOT
from tests.nemesis.evidence import Evidence

AS_LEFT = (
    *("about.json", "verdict.json", "acts.ndjson", "audit.ndjson", "replays.ndjson", "leases.ndjson"),
    *("ledger.ndjson", "seen.ndjson", "timeline.ndjson", "view.ndjson", "neighbours.json", "innocents.ndjson"),
    *("owed.ndjson", "rows.ndjson", "standing.ndjson", "stored.ndjson", "strays.ndjson", "samples.ndjson"),
)
EVENTS = ("id", "status")
STEPS = (
    *("at", "event_id", "who", "app", "old_status", "new_status", "old_token", "new_token", "lease_left"),
    *("old_attempts", "attempts", "abandoned", "replays", "reason", "dead_reason"),
)
DOCUMENTS = ("_id", "found", "version", "digest", "phantom")
ABOUT = """\
The raw history of one nemesis. Unpack it into a folder; `scripts/nemesis --judge FOLDER` computes its verdict again.

about.json, acts, audit, replays, leases, ledger, owed, seen, standing, timeline, view, neighbours, innocents, logs/: as
the run left them, but for paths of the machine. verdict.json: the verdict when it was packed.
events, steps, documents: the first line names the columns. An event is named by its place in ledger.ndjson and then
owed.ndjson, from 0 (or by its id, where neither has it); a lease's token by a number of its own. Columns that
nothing is judged by are left out of events.
"""


def pack(found: Evidence, target: Path) -> int:
    """The size in bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as tar:
        _add(tar, "README", ABOUT.encode())
        for name in AS_LEFT:
            if (found.folder / name).exists():
                _add(tar, name, _placeless(found, (found.folder / name).read_bytes()))
        _add(tar, "events.ndjson", _table(EVENTS, found.events.values(), _Short(found)))
        _add(tar, "steps.ndjson", _placeless(found, _table(STEPS, found.steps, _Short(found))))
        _add(tar, "documents.ndjson", _table(DOCUMENTS, found.documents.values(), _Short(found)))
        for log in found.log_files:
            _add(tar, f"logs/{log.name}", _placeless(found, log.read_bytes()))
    return target.stat().st_size


def _placeless(found: Evidence, data: bytes) -> bytes:
    """A path of the machine that it ran on is nobody's business."""
    for place in (found.folder.resolve(), found.folder, ROOT, Path.home()):
        if place.is_absolute() and place != Path("/"):
            data = data.replace(str(place).encode(), b".")
    return data


class _Short:
    """Long names that come again and again, by a number: a third of the size."""

    def __init__(self, found: Evidence) -> None:
        self._events = {entry.id: place for place, entry in enumerate(found.attempted)}
        self._tokens: dict[str, int] = {}

    def __call__(self, column: str, value: Any) -> Any:
        if column in ("id", "event_id"):
            return self._events.get(value, value)
        if column in ("old_token", "new_token") and value is not None:
            return self._tokens.setdefault(value, len(self._tokens))
        return value


def _table(columns: tuple[str, ...], rows: Iterable[dict[str, Any]], short: _Short) -> bytes:
    return _lines(_cells(columns, rows, short))


def _cells(columns: tuple[str, ...], rows: Iterable[dict[str, Any]], short: _Short) -> Iterator[list[Any]]:
    yield list(columns)
    for row in rows:
        yield [short(column, row.get(column)) for column in columns]


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _lines(rows: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
