"""Packs a history small enough for a repository: what was done, the verdict, and every life that was not plain."""

from __future__ import annotations

import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.nemesis.evidence import Evidence

WHOLE = ("about.json", "verdict.json", "acts.ndjson", "audit.ndjson", "replays.ndjson")
LETTERS = {"pending": "p", "processing": "w", "done": "d", "failed": "f", "discarded": "x", None: "-"}
ABOUT = """\
about.json, verdict.json, acts.ndjson, audit.ndjson, replays.ndjson: as the run left them.
timeline.ndjson: open and failed events, stuck rows and connections, once a second.
lives.ndjson: one line an event that did not simply go pending, processing, done, in the order of its first step:
  [event id, entity, op, version, [[seconds since the storm began, who, app, from, to, attempts, reason], ...]]
  p pending, w processing, d done, f failed, - removed by pruning. Plain lives are counted in plain.json.
"""


def pack(found: Evidence, target: Path) -> int:
    """The size in bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as tar:
        for name in WHOLE:
            # A path of the machine that it ran on is nobody's business.
            here = str(found.folder.resolve()).encode()
            _add(tar, name, (found.folder / name).read_bytes().replace(here, b"."))
        _add(tar, "README", ABOUT.encode())
        _add(tar, "timeline.ndjson", _lines(_thin(found)))
        lives, plain = _lives(found)
        _add(tar, "lives.ndjson", _lines(lives))
        _add(tar, "plain.json", json.dumps({"events": plain}).encode())
    return target.stat().st_size


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _lines(rows: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def _thin(found: Evidence) -> Iterator[dict[str, Any]]:
    began = found.about["storm_began"]
    for line in found.timeline:
        kept = {name: value for name, value in line.items() if name not in ("workers", "at", "calm")}
        yield {"t": round(line["at"] - began, 1), **kept}


def _lives(found: Evidence) -> tuple[list[Any], int]:
    began = found.about["storm_began"]
    steps: dict[str, list[Any]] = defaultdict(list)
    for step in found.steps:
        steps[step["event_id"]].append(
            [
                round(step["at"] - began, 2),
                step["who"],
                (step["app"] or "").removeprefix("outbox-"),
                LETTERS[step["old_status"]],
                LETTERS[step["new_status"]],
                step["attempts"],
                step["reason"],
            ]
        )
    lives, plain = [], 0
    for event, life in steps.items():
        if _is_plain(life):
            plain += 1
            continue
        entry = found.by_id.get(event)
        told = (entry.document, entry.op, entry.version) if entry else ("?", "?", 0)
        lives.append([event, *told, life])
    return lives, plain


def _is_plain(life: list[Any]) -> bool:
    return [step[3] + step[4] for step in life if step[4] != "-"] == ["pw", "wd"]
