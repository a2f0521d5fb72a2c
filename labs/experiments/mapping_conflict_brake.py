"""A release writes a field that the mapping rejects: the brake lets 50 rows fail and holds back the rest."""

from __future__ import annotations

import sys

from labs.checks import at_least, at_most, holds, noted
from labs.experiment import CheckResult, Experiment
from labs.invariants import EVERYWHERE, nothing_failed
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

BAD, MOST = 150, 50
HELD = "status = 'pending' and error_reason = 'es_rejected_document' and next_retry_at > now()"
FAILED = "failed_at is not null"


def fault(stage: Stage) -> None:
    stage.table.burst(BAD, {"colour": "red"})
    stage.mark(f"{BAD} documents with a field that the mapping rejects", "fault")
    stage.wait_until(lambda: stage.table.count(HELD) >= BAD - MOST, "the brake holds rows back")
    stage.note("failed", stage.table.count(FAILED))
    stage.note("held", stage.table.count(HELD))
    stage.note("held_attempts", stage.table.value("select max(attempts) from search_outbox_events where " + HELD))
    stage.watch(3.0)


def restore(stage: Stage) -> None:
    """Add the field to the mapping. Held rows would be retried within a minute; the lab does not wait for that."""
    stage.elastic.indices.put_mapping(index=stage.real_index, properties={"colour": {"type": "keyword"}})
    stage.mark("the mapping is corrected", "act")
    stage.table.rows("update search_outbox_events set next_retry_at = now() where " + HELD)


def after(stage: Stage) -> None:
    command = [sys.executable, "-m", "outbox", "replay", "--by", "alice", "--reason", "mapping corrected"]
    stage.program(command, ["outbox", *command[3:]], (0,))
    stage.wait_until(lambda: stage.table.count(FAILED) == 0, "no row is failed any more")


def others_went_on(record: Record) -> CheckResult:
    done = record.total("outbox_processed_total", "fault")
    observed = f"{done:.0f} done meanwhile"
    return holds("All other rows settle", "some are done during the fault", observed, done > 0, "timeline.ndjson")


def said(record: Record) -> CheckResult:
    lines = record.said("brake.on")
    observed = lines[0].get("remedy", "") if lines else "no such line"
    ok = bool(lines) and "outbox resume --let-fail" in observed
    return holds("The brake is reported", "brake.on with its remedy", observed, ok, "logs/w1.ndjson")


EXPERIMENT = Experiment(
    name="mapping_conflict_brake",
    title="A mapping that refuses every new document",
    story="A producer's release adds a field that the index does not allow. Every such document is rejected, and"
    " each rejection is final.",
    hypothesis=(
        f"At most {MOST} rows fail; the rest is held back without counting attempts, an alert reports it, and all other"
        " rows settle as usual. Once the mapping is corrected the held rows are delivered, and one replay"
        " delivers the failed ones."
    ),
    load=Load("create", rate=20),
    mapping={"dynamic": "strict"},
    fault=fault,
    restore=restore,
    after=after,
    bit=at_least("rows held back", noted("held"), BAD - MOST, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        at_most("rows failed at once", lambda record: record.peak("failed"), MOST, "timeline.ndjson"),
        at_most("attempts of held rows", noted("held_attempts"), 0, "record.json (notes)"),
        others_went_on,
        said,
        nothing_failed,
    ),
    expected_alerts=("OutboxBrakeOn",),
    finding=lambda record: f"{record.notes['failed']} rows failed, {record.notes['held']} were held back;",
    runbook="docs/runbooks/OutboxBrakeOn.md",
    seconds=35,
)
