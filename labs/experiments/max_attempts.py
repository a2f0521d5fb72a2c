"""The guide's lab 4: what cannot be delivered becomes failed after its attempts, and is never retried forever."""

from __future__ import annotations

from collections.abc import Sequence

from labs.checks import at_least, nobody
from labs.experiment import CheckResult, Experiment, Guide
from labs.invariants import EVERYWHERE, counters_are_true, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

MOST = 3


def fault(stage: Stage) -> None:
    stage.elastic_link.cut()
    stage.mark("Elasticsearch cut off", "fault")
    stage.wait_until(lambda: stage.table.count("failed_at is not null") >= 20, "rows are failed")


def failed(record: Record) -> int:
    return record.statuses["failed"]


def never_more(record: Record) -> CheckResult:
    over = [id for id, row in record.events.items() if row["attempts"] > MOST]
    seen = max(int(row["attempts"]) for row in record.events.values())
    return nobody("Attempts end", f"no row was tried more than {MOST} times", f"{seen} at most", over, "events.ndjson")


def given_up_visibly(record: Record) -> CheckResult:
    rows = [row for row in record.events.values() if row["status"] == "failed"]
    wrong = [
        row["id"]
        for row in rows
        if (row["attempts"], row["dead_reason"]) != (MOST, "max_attempts_exceeded") or not row["error_reason"]
    ]
    expected = f"attempts={MOST}, max_attempts_exceeded, a reason"
    return nobody("Failed visibly", expected, f"{len(rows)} failed, {len(wrong)} otherwise", wrong, "events.ndjson")


def terminal(record: Record) -> float:
    return sum(
        record.total(f"outbox_terminal_failed_total{{reason={why}}}") for why in ("connect", "timeout", "es_5xx")
    )


def conclusion(record: Record) -> Sequence[tuple[str, str]]:
    good = never_more(record).ok and given_up_visibly(record).ok and failed(record) > 0
    return (
        ("Parameters", f"max_attempts={MOST}, base_backoff=0.2 s, max_backoff=1.0 s"),
        ("Rows that reached max_attempts and failed", str(failed(record))),
        ("outbox_terminal_failed_total grew by", f"{terminal(record):.0f}"),
        ("v2 upper limit of attempts", "OK" if good else "FAIL"),
    )


EXPERIMENT = Experiment(
    name="max_attempts",
    title="Attempts are limited",
    story="Elasticsearch is down for longer than planned. A person must decide, but a queue that retries"
    " forever never asks.",
    hypothesis=(
        f"After {MOST} attempts a row is `failed` with its last reason; rows committed"
        " afterwards are delivered as soon as Elasticsearch is back."
    ),
    load=Load("create", rate=30),
    settings={
        "OUTBOX_MAX_ATTEMPTS": str(MOST),
        "OUTBOX_BASE_BACKOFF_SECONDS": "0.2",
        "OUTBOX_MAX_BACKOFF_SECONDS": "1.0",
    },
    fault=fault,
    bit=at_least("failed rows", failed, 20, "events.ndjson"),
    invariants=(
        *EVERYWHERE,
        never_more,
        given_up_visibly,
        at_least("outbox_terminal_failed_total", terminal, 20, "timeline.ndjson"),
        counters_are_true,
        recovered_within(15),
    ),
    expected_alerts=("OutboxFailedEvents",),
    finding=lambda record: f"{failed(record)} rows failed after exactly {MOST} attempts;",
    guide=Guide(4, "7.5", "v2", conclusion),
    runbook="docs/runbooks/OutboxFailedEvents.md",
    seconds=25,
)
