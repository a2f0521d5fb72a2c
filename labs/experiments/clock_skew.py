"""One daemon's clock is an hour ahead, another's an hour behind: leases and retries go by PostgreSQL's clock alone."""

from __future__ import annotations

from labs.checks import at_least, holds, nobody, when
from labs.experiment import CheckResult, Experiment
from labs.faketime import how, skewed
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

HOUR, LEASE = 3600, 4


def fault(stage: Stage) -> None:
    stage.note("skewed_by", how())
    stage.start("ahead", skewed(HOUR, stage.pythonpath))
    stage.start("behind", skewed(-HOUR, stage.pythonpath))
    stage.worker("w1").end()
    stage.mark("w1 is stopped; one clock is an hour ahead, one behind", "fault")
    stage.elastic_link.cut()
    stage.mark("Elasticsearch cut off", "fault")
    stage.watch(4.0)
    stage.elastic_link.heal()
    stage.watch(2.0)
    _kill_with_rows(stage)


def _kill_with_rows(stage: Stage) -> None:
    """The daemon with the fast clock is killed with claimed rows; the one with the slow clock must reclaim them in
    time."""
    stage.idle()
    stage.worker("behind").freeze()
    stage.elastic_link.stall()
    stage.table.burst(30)
    held = "status = 'processing' and owner = 'ahead'"
    stage.wait_until(lambda: stage.table.count(held) >= 30, "rows that are claimed")
    stage.kill("ahead")
    stage.elastic_link.heal()
    stage.worker("behind").thaw()
    stage.producer.resume()
    stage.wait_until(lambda: stage.table.count(held) == 0, "reclaimed")


def restore(stage: Stage) -> None:
    stage.producer.resume()


def skew(record: Record) -> float:
    """The offset of the fast daemon's log lines from the lab's own clock."""
    stamps = [when(line["ts"]) for line in record.said("worker.started") if line["log"] == "ahead"]
    return max((stamp - float(record.about["began_at"]) for stamp in stamps), default=0.0)


def taken_back_in_time(record: Record) -> CheckResult:
    """By PostgreSQL's clock: not before the lease was over, and not long after."""
    left = [
        -float(step["lease_left"])
        for step in record.steps
        if step["old_owner"] == "ahead" and step["new_status"] == "pending" and not step["retries"]
        if step["attempts"] == step["old_attempts"]
    ]
    observed = f"{len(left)} rows, {min(left, default=0):.2f} to {max(left, default=0):.2f} s after the lease"
    ok = bool(left) and min(left) >= 0 and max(left) <= 10
    return holds("Reclaimed in time", "0 to 10 s after the end of the lease", observed, ok, "steps.ndjson")


def retries_in_time(record: Record) -> CheckResult:
    """With a clock that is an hour off, retries would be due at once, repeatedly, or in an hour."""
    over = [id for id, row in record.events.items() if row["attempts"] > 12]
    seen = max(int(row["attempts"]) for row in record.events.values())
    return nobody(
        "Retries keep their pace", "at most 12 attempts in a short outage", f"{seen} at most", over, "events.ndjson"
    )


def summary(record: Record) -> str:
    return f"One clock was {skew(record) / 60:.0f} minutes ahead, another as much behind;"


EXPERIMENT = Experiment(
    name="clock_skew",
    title="Clocks that are an hour wrong",
    story="NTP fails on one host, daylight saving is misconfigured on another. Two daemons share a table but do not"
    " agree on the time.",
    hypothesis=(
        "Leases, due times and reclaims use the database's clock alone: nothing is reclaimed early, nothing waits an"
        " hour, and the documents are right."
    ),
    load=Load("mixed", rate=20),
    settings={"OUTBOX_LEASE_SECONDS": str(LEASE)},
    fault=fault,
    restore=restore,
    bit=at_least("the clock was ahead by", skew, HOUR - 120, "logs/ahead.ndjson", " s"),
    invariants=(*EVERYWHERE, nothing_failed, taken_back_in_time, retries_in_time, recovered_within(30)),
    finding=summary,
    runbook="docs/runbooks/OutboxStuck.md",
    needs="only its own database and index; libfaketime (Debian: faketime) shifts the clock of the whole process",
    seconds=35,
)
