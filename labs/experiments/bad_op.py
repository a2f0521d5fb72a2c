"""The guide's lab 3: a row that can never be sent fails at once, with its reason, and affects no other row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from labs.checks import exactly
from labs.experiment import CheckResult, Experiment, Guide
from labs.invariants import EVERYWHERE, counters_are_true, recovered_within
from labs.ledger import LedgerEntry
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

# As in the guide, with all columns.
INSERT = """
INSERT INTO search_outbox_events (
  id, entity_type, entity_id, op, event_version, status, attempts, replay_count, created_at, updated_at
) VALUES (
  gen_random_uuid(), 'block', gen_random_uuid(), 'not-a-real-op', 0, 'pending', 0, 0, now(), now()
) RETURNING id::text, entity_id
"""
ERROR = "Unknown outbox op: 'not-a-real-op'"


def fault(stage: Stage) -> None:
    [(bad, entity)] = stage.table.rows(INSERT)
    stage.ledger.add(LedgerEntry(bad, "block", entity, "not-a-real-op", 0, "", time.time()))
    stage.note("bad", bad)
    stage.mark("a row with op 'not-a-real-op' is inserted", "fault")
    stage.wait_until(lambda: stage.table.count("failed_at is not null"), "the bad row failed")
    stage.watch(5.0)  # the row must stay failed, and others continue


def the_row(record: Record) -> dict[str, Any]:
    return record.events.get(str(record.notes.get("bad")), {})


def failed_at_once(record: Record) -> CheckResult:
    row = the_row(record)
    seen = f"{row.get('status')}, attempts={row.get('attempts')}, next_retry_at={row.get('next_retry_at')}"
    ok = (row.get("status"), row.get("attempts"), row.get("next_retry_at")) == ("failed", 1, None)
    return CheckResult(
        "Failed at once", "failed, attempts=1, next_retry_at=None", seen, ok, "events.ndjson", row.get("id")
    )


def has_a_reason(record: Record) -> CheckResult:
    row = the_row(record)
    seen = f"{row.get('error_reason')}, {row.get('error_code')}: {row.get('error')}"
    ok = row.get("error_reason") == "deterministic_exception" and ERROR in str(row.get("error"))
    return CheckResult("It says why", f"deterministic_exception: ... {ERROR}", seen, ok, "events.ndjson", row.get("id"))


def conclusion(record: Record) -> Sequence[tuple[str, str]]:
    ended, said = failed_at_once(record), has_a_reason(record)
    return (
        ("Injected by", "SQL, a row with a bad op"),
        ("Failed is final", "yes" if ended.ok else "no"),
        ("error_reason is written", f"{'yes' if said.ok else 'no'} (value: {the_row(record).get('error_reason')})"),
        ("Deterministic errors converge", "OK" if ended.ok and said.ok else "FAIL"),
    )


EXPERIMENT = Experiment(
    name="bad_op",
    title="A row that can never be sent",
    story="A release of the producer writes an op that no projector knows. Retries cannot help.",
    hypothesis=(
        "The row fails at its first attempt, with reason and error, and is not retried. All other rows of its"
        " batch are processed normally."
    ),
    load=Load("create", rate=40),
    fault=fault,
    bit=exactly("failed rows", lambda record: record.statuses["failed"], 1, "events.ndjson"),
    invariants=(
        *EVERYWHERE,
        failed_at_once,
        has_a_reason,
        exactly(
            "outbox_terminal_failed_total{reason=deterministic_exception}",
            lambda record: record.total("outbox_terminal_failed_total{reason=deterministic_exception}"),
            1.0,
            "timeline.ndjson",
        ),
        counters_are_true,
        recovered_within(5),
    ),
    expected_alerts=("OutboxFailedEvents",),
    finding=lambda record: "One bad row failed at its first attempt;",
    guide=Guide(3, "6.4", "v2", conclusion),
    runbook="docs/runbooks/OutboxFailedEvents.md",
    seconds=15,
)
