"""Makes the folder of a run, so that verdicts and reports can be tested without any server."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labs.ledger import LedgerEntry
from labs.record import Record

BEGAN = 1_794_000_000.0
AT = "2026-11-06T15:20:0{}+00:00"


def step(event: str, old: str, new: str, n: int = 1, **more: Any) -> dict[str, Any]:
    owner = more.pop("owner", "w1")
    return {
        "n": n,
        "at": AT.format(n % 10),
        "event_id": event,
        "who": owner,
        "app": "outbox-lanes",
        "old_status": old,
        "new_status": new,
        "old_owner": owner if old == "processing" else None,
        "new_owner": owner if new == "processing" else None,
        "old_token": f"t-{owner}" if old == "processing" else None,
        "new_token": f"t-{owner}" if new == "processing" else None,
        "lease_left": 3.0,
        "old_attempts": 0,
        "attempts": 1,
        "retries": False,
        "reason": None,
        "dead_reason": None,
        "abandoned": 0,
        "replays": 0,
        **more,
    }


def row(event: str, status: str = "done", **more: Any) -> dict[str, Any]:
    common = {"id": event, "entity_type": "block", "entity_id": event, "op": "upsert", "event_version": 1}
    rest = {"status": status, "attempts": 1, "replay_count": 0, "error_reason": None, "error": None, "digest": "d"}
    return {**common, **rest, **more}


def look(t: float, phase: str, **status: int) -> dict[str, Any]:
    page = {"outbox_processed_total": float(status.get("done", 0)), "outbox_paused{cause=connect}": 0.0}
    worker = {"up": True, "ready": 200, "state": "ready", "m": page}
    return {
        "t": t,
        "phase": phase,
        "status": status,
        "oldest": 1.0,
        "stuck": 0,
        "workers": {"w1": worker},
        "canaries": {},
    }


def made_record(
    folder: Path,
    *,
    events: Sequence[str] = ("e1", "e2"),
    rows: Sequence[dict[str, Any]] | None = None,
    steps: Sequence[dict[str, Any]] | None = None,
    documents: Sequence[dict[str, Any]] | None = None,
    **about: Any,
) -> Record:
    """Two events that are done, unless given otherwise."""
    ledger = [LedgerEntry(e, "block", e, "upsert", 1, "d", BEGAN + 1) for e in events]
    good = [s for e in events for s in (step(e, "pending", "processing"), step(e, "processing", "done", 2))]
    files: dict[str, Sequence[Any]] = {
        "ledger": [asdict(entry) for entry in ledger],
        "events": [row(e) for e in events] if rows is None else rows,
        "steps": good if steps is None else steps,
        "documents": [{"_id": f"block:{e}", "found": True, "version": 1, "digest": "d"} for e in events]
        if documents is None
        else documents,
        "timeline": [look(n, "baseline" if n < 3 else "fault" if n < 6 else "recovery", done=n) for n in range(9)],
        "leases": [],
        "attempts": [],
        "audit": [],
    }
    for name, lines in files.items():
        (folder / f"{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "w1.ndjson").write_text(
        '{"ts": "2026-11-06T15:20:04Z", "level": "warning", "event": "lease.lost"}\n'
    )
    (folder / "record.json").write_text(json.dumps({**_about(folder), **about}))
    return Record(folder)


def _about(folder: Path) -> dict[str, Any]:
    phases = [("baseline", 0.0, 3.0), ("fault", 3.0, 6.0), ("recovery", 6.0, 8.0)]
    snapshot = {
        "t": 1.0,
        "A": {"columns": ["status", "count"], "rows": [["pending", 1]]},
        "B": {"columns": ["stuck_processing"], "rows": [[0]]},
        "C": {"columns": ["id", "attempts"], "rows": [["e1", 1]]},
    }
    return {
        "experiment": "bad_op",
        "run": folder.name,
        "operator": "alice",
        "seed": 1,
        "began_at": BEGAN,
        "seconds": 8.0,
        "phases": [{"name": name, "began": began, "ended": ended} for name, began, ended in phases],
        "markers": [{"t": 3.0, "text": "a fault <&>", "kind": "fault"}, {"t": 6.0, "text": "restored", "kind": "heal"}],
        "notes": {"recovery_seconds": 1.0},
        "steps": [{"t": 7.0, "command": ["outbox", "status"], "exit": 0, "stdout": "fine", "stderr": ""}],
        "snapshots": {"before": snapshot, "during": snapshot, "after": snapshot},
        "problems": [],
        "exit_codes": {"w1": 0},
        "links": {},
        "alerts": {
            "speed": 60.0,
            "spans": {"OutboxStuck": [[3.0, 4.0, "pending"], [4.0, 6.0, "firing"]]},
            "why_not": "",
        },
        "settings": {"OUTBOX_LEASE_SECONDS": "5"},
        "environment": {"postgresql": "18", "elasticsearch": "8.14.1", "commit": "abc"},
        "made": {"database": "d", "index": "i", "kept": False},
    }
