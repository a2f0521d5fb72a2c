"""Kafka Connect stops: the slot keeps what is written, doctor and an alert say so, and nothing is missing later."""

from __future__ import annotations

import json
from typing import Any

from labs.checks import at_least, exactly, holds
from labs.experiment import CheckResult, Experiment
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

MEGABYTES = 40  # that other tables of the server write meanwhile
WRITE_MORE = "select pg_logical_emit_message(false, 'lab', repeat('x', 1000000)) from generate_series(1, 40)"


def fault(stage: Stage) -> None:
    assert stage.stream is not None
    stage.undo_later(stage.stream.start_connect)
    stage.stream.stop_connect()
    stage.mark("Kafka Connect stopped", "fault")
    stage.table.rows(WRITE_MORE)
    stage.wait_until(lambda: stage.total("outbox_slot_kept_bytes") > MEGABYTES * 1e6, "the slot's metric grows")
    found = json.loads(stage.outbox("doctor", "--json", expect=(1,)).stdout)["findings"]
    stage.note("doctor", {name: _first(found, name) for name in ("slot", "connector")})


def _first(found: list[dict[str, Any]], name: str) -> str:
    said = [f"{each['verdict']}: {each['detail']}" for each in found if each["name"] == name]
    return said[0] if said else "nothing"


def after(stage: Stage) -> None:
    stage.wait_until(lambda: stage.total("outbox_slot_active") == 1, "the metric of a slot in use")
    stage.note("active_again", 1)


def doctor_says_so(record: Record) -> CheckResult:
    said = record.notes.get("doctor", {})
    slot, connector = str(said.get("slot")), str(said.get("connector"))
    ok = slot.startswith("problem: slot outbox_log is not in use") and connector.startswith("unknown")
    expected = "the slot is not in use, a problem; Kafka Connect does not answer"
    return holds("doctor says so", expected, f"{slot}; {connector}", ok, "record.json (notes, steps)")


def kept(record: Record) -> float:
    return record.most("outbox_slot_kept_bytes") / 1e6


EXPERIMENT = Experiment(
    name="kafka_connector_stopped",
    title="Kafka Connect stops while producers write",
    story=(
        "Connect is updated, its task fails, its machine is gone. Producers notice nothing, the topic is empty and its"
        " lag is 0; meanwhile PostgreSQL keeps its write-ahead log for the connector's slot."
    ),
    hypothesis=(
        "The metrics of the slot show what is kept, the alert OutboxSlotInactive fires, and `outbox doctor` calls it a"
        " problem. When Connect runs again, the connector continues where its slot is, and every event arrives."
    ),
    load=Load("mixed", rate=40),
    kafka=True,
    fault=fault,
    after=after,
    bit=at_least("write-ahead log kept for the slot", kept, MEGABYTES, "timeline.ndjson", " MB"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        doctor_says_so,
        exactly("the slot is in use again", lambda record: record.notes.get("active_again"), 1, "record.json (notes)"),
        recovered_within(60),
    ),
    expected_alerts=("OutboxSlotInactive",),
    finding=lambda record: f"The slot kept {kept(record):.0f} MB while Connect was down;",
    runbook="docs/runbooks/OutboxSlotInactive.md",
    needs="a PostgreSQL, a Kafka and a Kafka Connect of its own",
    seconds=90,
)
