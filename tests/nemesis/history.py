"""Writes a run's history in the format of docs/model/history.md: all that the second judge sees. It judges nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labs.addresses import PEOPLE
from labs.invariants import RECLAIMER
from tests.nemesis.evidence import Evidence

Line = dict[str, Any]
NAME = "history.jsonl"


def write(found: Evidence, target: Path) -> Path:
    with target.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines(found))
    return target


def lines(found: Evidence) -> Iterator[Line]:
    about = found.about
    yield {"kind": "run", "source": about.get("source", "table"), "most_attempts": int(about.get("max_attempts", 0))}
    for entry in found.attempted:
        what = {"event": entry.id, "document": entry.document, "op": entry.op, "version": entry.version}
        told = {"digest": entry.digest, "answered": entry.committed, "refusable": found.may_be_refused(entry.id)}
        yield {"kind": "commit", **what, **told}
    yield from map(_step, found.steps)
    for row in found.rows("writes"):
        yield {"kind": "write", **row}
    for row in found.seen:
        told = {"life": row["life"], "index": row["index"], "versions": row["changed"], "last": bool(row.get("final"))}
        yield {"kind": "read", "at": row["at"], "still": row["before"], **told}
    yield from _in_the_end(found)


def _step(step: dict[str, Any]) -> Line:
    what = {"event": step["event_id"], "at": step["at"], "by": step["who"], "from": step["old_status"]}
    numbers = {name: step[name] or 0 for name in ("attempts", "abandoned", "replays")}
    if step["new_status"] == "processing":
        return {"kind": "claim", **what, **numbers, "token": step["new_token"], "token_before": step["old_token"]}
    role = "reclaimer" if step["app"] == RECLAIMER or step["who"] == PEOPLE else "lane"
    left = {"token": step["old_token"], "lease_left": step["lease_left"] or 0, "why": step["dead_reason"]}
    return {"kind": "settle", **what, **numbers, **left, "role": role, "to": step["new_status"]}


def _in_the_end(found: Evidence) -> Iterator[Line]:
    for row in (*found.events.values(), *found.rows("stored")):
        yield {"kind": "event", "event": row["id"], "status": row["status"]}
    for row in found.rows("leases"):
        yield {"kind": "lease", "token": row["token"]}
    for name, row in found.documents.items():
        there = bool(row.get("found") or row.get("phantom"))
        yield {
            "kind": "document",
            "document": name,
            "there": there,
            "version": row.get("version"),
            "digest": row.get("digest"),
        }
    for name, places in found.standing.items():
        for place in places:
            yield {"kind": "place", "document": name, "routing": place.routing, "digest": place.digest}
    for name, place in found.view.items():
        yield {"kind": "view", "document": name, "routing": place.routing, "digest": place.digest}
