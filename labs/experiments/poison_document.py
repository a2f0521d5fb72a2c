"""Bad documents of many kinds among good ones: each fails with its own reason, and no other is affected."""

from __future__ import annotations

from typing import Any

from labs.checks import exactly, nobody
from labs.experiment import CheckResult, Experiment
from labs.invariants import EVERYWHERE, counters_are_true, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

GOOD: dict[str, Any] = {"title": "good", "content": "x", "revision": 1}
# The error -> what is inserted, and the expected reason and code.
POISON: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "text in a number field": (
        {"payload": {"title": "bad", "revision": "many"}},
        ("es_rejected_document", "OUTBOX_PAYLOAD_INVALID"),
    ),
    "an empty field name": (
        {"payload": {"title": "bad", "": 1}},
        ("es_rejected_document", "OUTBOX_PAYLOAD_INVALID"),
    ),
    "a list instead of an object": (
        {"payload": ["bad"]},
        ("deterministic_exception", "OUTBOX_PAYLOAD_INVALID"),
    ),
    "an id of 600 bytes": (
        {"payload": GOOD, "entity_id": "x" * 600},
        ("deterministic_exception", "OUTBOX_PRECONDITION_FAILED"),
    ),
    "a version below zero": (
        {"payload": GOOD, "version": -1},
        ("deterministic_exception", "OUTBOX_PRECONDITION_FAILED"),
    ),
    "no document and no view": (
        {"payload": None},
        ("deterministic_exception", "OUTBOX_PAYLOAD_MISSING"),
    ),
}


def fault(stage: Stage) -> None:
    """While the daemon is frozen, so that good and bad are claimed in one batch."""
    stage.idle()
    stage.worker().freeze()
    bad = {}
    for number, (what, (row, _)) in enumerate(POISON.items()):
        bad[what] = stage.table.insert(**{"entity_id": f"poison-{number}", **row})
        for more in range(3):
            stage.table.insert(f"neighbour-{number}-{more}", payload=GOOD)
    stage.note("bad", bad)
    stage.worker().thaw()
    stage.mark(f"{len(bad)} bad documents among {3 * len(bad)} good ones", "fault")
    stage.wait_until(lambda: stage.table.count("failed_at is not null") >= len(bad), "the bad ones failed")
    stage.producer.resume()
    stage.watch(3.0)


def each_has_its_reason(record: Record) -> CheckResult:
    wrong = []
    for what, id in record.notes.get("bad", {}).items():
        row = record.events.get(id, {})
        seen = (row.get("status"), row.get("attempts"), row.get("error_reason"), row.get("error_code"))
        if seen != ("failed", 1, *POISON[what][1]):
            wrong.append(id)
    observed = f"{len(POISON)} kinds, {len(wrong)} with another result"
    return nobody(
        "Each has its reason", "failed at the first attempt, right reason and code", observed, wrong, "events.ndjson"
    )


def neighbours_unharmed(record: Record) -> CheckResult:
    """I16."""
    bad = set(record.notes.get("bad", {}).values())
    wrong = [
        id for id, row in record.events.items() if id not in bad and (row["status"], row["attempts"]) != ("done", 1)
    ]
    observed = f"{len(record.events) - len(bad)} others, {len(wrong)} affected"
    return nobody("No other is affected", "all others done at their first attempt", observed, wrong, "events.ndjson")


EXPERIMENT = Experiment(
    name="poison_document",
    title="Bad documents among good ones",
    story="One producer writes text where a number belongs; another sends a list. They share a batch with everyone"
    " else.",
    hypothesis=(
        "Every bad document fails at its first attempt with its own reason and code; every good one in the same batch"
        " is done at its first attempt."
    ),
    load=Load("create", rate=40),
    fault=fault,
    bit=exactly("failed rows", lambda record: record.statuses["failed"], len(POISON), "events.ndjson"),
    invariants=(*EVERYWHERE, each_has_its_reason, neighbours_unharmed, counters_are_true, recovered_within(10)),
    expected_alerts=("OutboxFailedEvents",),
    finding=lambda record: f"{len(POISON)} kinds of bad document failed, each with its reason;",
    runbook="docs/runbooks/OutboxFailedEvents.md",
    seconds=20,
)
