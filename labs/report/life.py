"""Shows the history of one event from a record: its row, its document and the document's other events, by time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labs.checks import when
from labs.record import Record

STEPS = {
    ("pending", "processing"): "claimed",
    ("processing", "done"): "done",
    ("processing", "failed"): "failed",
    ("failed", "pending"): "replayed",
    ("done", None): "pruned",
    ("discarded", None): "pruned",
}


@dataclass(frozen=True, slots=True)
class Moment:
    t: float
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class Life:
    event: str
    document: str
    moments: list[Moment]
    end: str
    others: list[str]


def life(record: Record, event: str) -> Life | None:
    """None for an unknown event: it has no history."""
    entry = next((entry for entry in record.committed if entry.id == event), None)
    row = record.events.get(event)
    if entry is None and row is None:
        return None
    document = entry.document if entry else f"{row['entity_type']}:{row['entity_id']}" if row else ""
    began = float(record.about["began_at"])
    moments = [_step(step, began) for step in record.steps if step["event_id"] == event]
    if entry is not None:
        text = f"{entry.op}, version {entry.version}"
        moments.insert(0, Moment(entry.at - began, "committed", text))
    attempts = [attempt for attempt in record.rows("attempts") if attempt["event_id"] == event]
    moments += [Moment(when(a["at"]) - began, "refused", f"{a['reason']}: {a['error']}") for a in attempts]
    return Life(
        event,
        document,
        sorted(moments, key=lambda m: m.t),
        _end(record, row, document),
        _others(record, event, document),
    )


def _step(step: dict[str, Any], began: float) -> Moment:
    arrow = (step["old_status"], step["new_status"])
    name = STEPS.get(arrow) or _back(step)
    text = f"by {step['who'] or 'somebody else'} ({step['app']}), attempt {step['attempts']}"
    if arrow[0] == "processing":
        text += f"; it was held by {step['old_owner']}"
    if arrow[0] == "processing" and step["lease_left"] is not None:
        text += f" with {step['lease_left']:.1f} s of its lease left"
    if step["reason"] and arrow[1] != "processing":
        text += f", {step['reason']}"
    return Moment(when(step["at"]) - began, name, text)


def _back(step: dict[str, Any]) -> str:
    if step["attempts"] < step["old_attempts"]:
        return "given back"
    return "to be retried" if step["retries"] else "reclaimed"


def _end(record: Record, row: dict[str, Any] | None, document: str) -> str:
    found = record.documents.get(document)
    doc = f"version {found['version']}" if found and found["found"] else "absent"
    if row is None:
        return f"The row is not in the table. The document is {doc}."
    text = f"The row is {row['status']}, version {row['event_version']}, {row['attempts']} attempts"
    return f"{text}{', ' + str(row['error']) if row['error'] else ''}. The document is {doc}."


def _others(record: Record, event: str, document: str) -> list[str]:
    same = [entry for entry in record.committed if entry.document == document and entry.id != event]
    return [f"{e.op} version {e.version}: {record.events.get(e.id, {}).get('status', 'missing')}" for e in same][:12]
