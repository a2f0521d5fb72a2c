"""The guide's lab 1: a daemon is killed with claimed rows, and they are reclaimed automatically."""

from __future__ import annotations

from collections.abc import Sequence

from labs.checks import at_least, noted
from labs.experiment import CheckResult, Experiment, Guide
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

LEASE, RECLAIM, MOST = 10, 2, 60
STUCK = "status = 'processing' and lease_until < now()"


def fault(stage: Stage) -> None:
    """Elasticsearch is stalled for a moment, so that the daemon has claimed rows when it is killed."""
    stage.idle()
    stage.elastic_link.stall()
    stage.table.burst(100)
    stage.wait_until(lambda: stage.table.count("status = 'processing'") >= 50, "rows processing")
    stage.note("processing_at_kill", stage.table.count("status = 'processing'"))
    stage.kill("w1")
    stage.elastic_link.heal()
    stage.producer.resume()
    stuck = stage.wait_until(lambda: stage.table.count(STUCK), "the killed daemon's leases expired")
    stage.note("stuck", stuck)
    stage.snapshot("during")


def restore(stage: Stage) -> None:
    """The same name again, right after kill -9: the name of a dead process on this host is free at once."""
    if not stage.worker("w1").running:
        stage.start("w1")


def reclaimed(record: Record) -> CheckResult:
    lines = record.said("Reclaimed ")
    observed = lines[0]["event"] if lines else "no such line"
    expected = "Reclaimed N stuck outbox events (expired lease or max processing exceeded)"
    ok = any(line["event"].endswith("(expired lease or max processing exceeded)") for line in lines)
    return CheckResult("The log reports it", expected, observed, ok, "logs/w1.2.ndjson")


def nothing_stuck(record: Record) -> CheckResult:
    last = record.timeline[-1].get("stuck", -1)
    return CheckResult(
        "Stuck returns to zero",
        "above 0, then 0",
        f"{record.notes.get('stuck')}, then {last}",
        last == 0,
        "timeline.ndjson",
    )


def conclusion(record: Record) -> Sequence[tuple[str, str]]:
    zero = nothing_stuck(record).ok
    return (
        ("Parameters", f"lease={LEASE} s, reclaim_interval={RECLAIM} s, max_processing={MOST} s"),
        ("Rows processing at the kill, about", str(record.notes.get("processing_at_kill"))),
        ("Stuck is zero after the restart", "yes" if zero else "no"),
        ("v1 stuck self-healing", "OK" if zero and reclaimed(record).ok else "FAIL"),
    )


EXPERIMENT = Experiment(
    name="stuck_reclaim",
    title="A daemon is killed with claimed rows",
    story=(
        "A machine loses power, the kernel kills the process, someone types kill -9. The rows it had claimed are"
        " `processing`, and their worker will never settle them."
    ),
    hypothesis=(
        "Once the lease has expired, the next daemon reclaims the rows within its reclaim interval, reports it in one"
        " log line, and finishes them; nothing stays stuck and nothing is lost."
    ),
    load=Load("mixed", rate=40),
    settings={
        "OUTBOX_LEASE_SECONDS": str(LEASE),
        "OUTBOX_RECLAIM_INTERVAL_SECONDS": str(RECLAIM),
        "OUTBOX_MAX_PROCESSING_SECONDS": str(MOST),
        "ELASTIC_TIMEOUT_SECONDS": "6",
    },
    fault=fault,
    restore=restore,
    bit=at_least("rows stuck after the kill", noted("stuck"), 1, "record.json (notes)"),
    invariants=(*EVERYWHERE, nothing_failed, reclaimed, nothing_stuck, recovered_within(20)),
    expected_alerts=("OutboxDown",),
    finding=lambda record: f"{record.notes['stuck']} rows were stuck after the kill and were reclaimed;",
    guide=Guide(1, "4.5", "v1", conclusion),
    runbook="docs/runbooks/OutboxStuck.md",
    seconds=30,
)
