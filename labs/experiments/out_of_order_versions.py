"""Older versions arrive after newer ones, deletes among them: the newest stays, in any order."""

from __future__ import annotations

from labs.checks import at_least
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

ENTITIES = 20
NEWEST = 5


def fault(stage: Stage) -> None:
    """Version 5 first; then 3, a delete at 2, and 4, each in its own batch."""
    _write(stage, NEWEST)
    _write(stage, 3)
    _write(stage, 2, op="delete")
    _write(stage, 4)


def _write(stage: Stage, version: int, op: str = "upsert") -> None:
    for number in range(ENTITIES):
        body = {"title": f"version {version}", "content": "x", "revision": version} if op == "upsert" else None
        stage.table.insert(f"shuffled-{number}", op=op, payload=body, version=version)
    stage.mark(f"version {version} ({op}) of {ENTITIES} documents", "fault")
    waiting = "entity_id like 'shuffled-%%' and processed_at is null and failed_at is null"
    stage.wait_until(lambda: stage.table.count(waiting) == 0, f"version {version} is settled")


def superseded(record: Record) -> float:
    return record.total("outbox_idempotent_noop_total{why=superseded}")


EXPERIMENT = Experiment(
    name="out_of_order_versions",
    title="Old versions arrive last",
    story="Two transactions on one row commit in one order and are claimed in another; a retry comes late; a replay"
    " sends an old event again.",
    hypothesis=(
        "Elasticsearch keeps the newest version of every document; older upserts and older deletes are settled as done"
        " and superseded, and change nothing."
    ),
    load=Load("update", rate=30),
    workers=("w1", "w2"),
    fault=fault,
    bit=at_least("events that came too late", superseded, ENTITIES, "timeline.ndjson"),
    invariants=(*EVERYWHERE, nothing_failed, counters_are_true, recovered_within(10)),
    finding=lambda record: f"{superseded(record):.0f} old versions came last and changed nothing;",
    runbook="docs/runbooks/OutboxOldestAge.md",
    seconds=20,
)
