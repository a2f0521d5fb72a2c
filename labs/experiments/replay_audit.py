"""The guide's lab 5: a person replays failed events, and the audit records who did it and why."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from labs.checks import at_least, nobody, noted
from labs.experiment import CheckResult, Experiment, Guide
from labs.invariants import EVERYWHERE, nothing_failed
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

BY, REASON = "alice", "fixed root cause"
FAILED = "failed_at is not null"


def fault(stage: Stage) -> None:
    """Nothing else is committed meanwhile: no more events fail than one replay with the guide's limit takes."""
    stage.producer.pause()
    stage.elastic_link.cut()
    stage.mark("Elasticsearch cut off", "fault")
    stage.table.burst(40)
    stage.wait_until(lambda: stage.table.count(FAILED) >= 40, "rows are failed")


def after(stage: Stage) -> None:
    """As in the guide: a dry run, then the replay."""
    stage.producer.resume()
    failed = stage.table.count(FAILED)
    stage.note("failed", failed)
    replay(stage, "--dry-run")
    stage.note("failed_after_dry_run", stage.table.count(FAILED))
    stage.note("audit_after_dry_run", stage.table.value("select count(*) from search_outbox_audit"))
    replay(stage)
    stage.wait_until(lambda: stage.table.count(FAILED) == 0, "no row is failed any more")


def replay(stage: Stage, *more: str) -> None:
    arguments = ["--by", BY, "--reason", REASON, "--limit", "100", *more]
    script = "scripts/search_outbox_replay_failed.py"
    stage.program([sys.executable, script, *arguments], ["python", script, *arguments], (0,))


def dry_run_changes_nothing(record: Record) -> CheckResult:
    notes = record.notes
    seen = f"{notes.get('failed')} failed before, {notes.get('failed_after_dry_run')} after; "
    seen += f"{notes.get('audit_after_dry_run')} audit rows"
    ok = notes.get("failed") == notes.get("failed_after_dry_run") and notes.get("audit_after_dry_run") == 0
    return CheckResult(
        "A dry run changes nothing", "the same number failed, no audit row", seen, ok, "record.json (notes)"
    )


def all_replayed(record: Record) -> CheckResult:
    moved = sum(row["replay_count"] for row in record.events.values())
    wanted = record.notes.get("failed")
    return CheckResult("All were replayed, once", str(wanted), str(moved), moved == wanted, "events.ndjson")


def written_on_the_row(record: Record) -> CheckResult:
    rows = [row for row in record.events.values() if row["replay_count"]]
    wrong = [
        row["id"]
        for row in rows
        if (row["replay_count"], row["last_replayed_by"], row["last_replayed_reason"]) != (1, BY, REASON)
        or row["error_reason"] is not None
    ]
    expected = f"replay_count=1, by {BY}, {REASON!r}, errors cleared"
    seen = f"{len(rows)} replayed, {len(wrong)} otherwise"
    return nobody("Written on the row", expected, seen, wrong, "events.ndjson")


def written_in_the_audit(record: Record) -> CheckResult:
    """I12: one item per row, one summary per batch."""
    items = [row for row in record.audit if row["action"] == "REPLAY_BATCH_ITEM"]
    rows = {id for id, row in record.events.items() if row["replay_count"]}
    observed = Counter(row["action"] for row in record.audit)
    ok = len(items) == len(rows) and {row["event_id"] for row in items} == rows and all(r["actor"] == BY for r in items)
    seen = ", ".join(f"{n} {action}" for action, n in observed.items())
    return CheckResult(
        "Written in the audit", f"one item for each of {len(rows)} rows, by {BY}", seen, ok, "audit.ndjson"
    )


def conclusion(record: Record) -> Sequence[tuple[str, str]]:
    good = written_on_the_row(record).ok and written_in_the_audit(record).ok
    return (
        ("Failed rows, made as in lab 4", str(record.notes.get("failed"))),
        ("The dry run changes nothing", "yes" if dry_run_changes_nothing(record).ok else "no"),
        ("replay_count, last_replayed_at/by/reason are written", "yes" if written_on_the_row(record).ok else "no"),
        ("The replayed rows are done", "yes" if nothing_failed(record).ok else "no"),
        ("v3 explicit, audited replay", "OK" if good and nothing_failed(record).ok else "FAIL"),
    )


EXPERIMENT = Experiment(
    name="replay_audit",
    title="A person replays what failed",
    story="The cause is found and fixed. Someone replays the failed events, and a month later someone else asks"
    " who did that and why.",
    hypothesis=(
        "A dry run changes nothing. The replay makes exactly the failed rows pending again, with their errors cleared;"
        " they are delivered, and each row and the audit record who replayed it and why."
    ),
    load=Load("create", rate=30),
    settings={
        "OUTBOX_MAX_ATTEMPTS": "2",
        "OUTBOX_BASE_BACKOFF_SECONDS": "0.2",
        "OUTBOX_MAX_BACKOFF_SECONDS": "1.0",
    },
    fault=fault,
    after=after,
    bit=at_least("rows that failed", noted("failed"), 40, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        dry_run_changes_nothing,
        written_on_the_row,
        written_in_the_audit,
        all_replayed,
    ),
    expected_alerts=("OutboxFailedEvents",),
    finding=lambda record: f"{record.notes['failed']} failed rows were replayed by {BY} and delivered;",
    guide=Guide(5, "8.4", "v3", conclusion),
    runbook="docs/runbooks/OutboxFailedEvents.md",
    seconds=30,
)
