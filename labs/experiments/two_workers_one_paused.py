"""A daemon is suspended beyond its lease and wakes up when another holds its rows: it must change nothing."""

from __future__ import annotations

from labs.checks import at_least
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

LEASE = 4
MINE = "status = 'processing' and owner = 'w2' and attempts > 1"


def fault(stage: Stage) -> None:
    """w1 is suspended with a claimed batch. w2 takes it over, and is still processing it when w1 wakes up."""
    stage.idle()
    stage.worker("w2").freeze()
    stage.link("w1").stall()
    stage.table.burst(40)
    stage.wait_until(lambda: stage.table.count("status = 'processing' and owner = 'w1'") >= 40, "w1 holds rows")
    stage.worker("w1").freeze()
    stage.mark("SIGSTOP w1", "fault")
    stage.worker("w2").thaw()
    stage.producer.resume()
    stage.watch(LEASE - 1.5)
    stage.link("w2").slow(1.5)
    stage.wait_until(lambda: stage.table.count(MINE) >= 1, "w2 works on w1's rows")
    stage.link("w1").heal()
    stage.worker("w1").thaw()
    stage.mark("SIGCONT w1", "act")
    stage.wait_until(lambda: stage.total("outbox_lease_lost_total") >= 1, "w1 finds that its lease is lost")
    stage.link("w2").heal()


def lost(record: Record) -> float:
    return record.total("outbox_lease_lost_total")


EXPERIMENT = Experiment(
    name="two_workers_one_paused",
    title="A daemon is suspended beyond its lease",
    story="A virtual machine is migrated, a container is throttled, a laptop lid closes. The process wakes up minutes"
    " later and continues where it was.",
    hypothesis=(
        "Its rows were reclaimed by another worker. Every settle is fenced by the lease token, so its late settle"
        " changes no row. It counts the loss, and the documents are right."
    ),
    load=Load("mixed", rate=20),
    workers=("w1", "w2"),
    links_apart=True,
    settings={"OUTBOX_LEASE_SECONDS": str(LEASE), "ELASTIC_TIMEOUT_SECONDS": "2.5"},
    fault=fault,
    bit=at_least("outbox_reclaimed_total", lambda record: record.total("outbox_reclaimed_total"), 1, "timeline.ndjson"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        at_least("outbox_lease_lost_total", lost, 1, "timeline.ndjson"),
        recovered_within(30),
    ),
    finding=lambda record: f"{lost(record):.0f} rows were held by another worker when it woke up, and it changed none;",
    runbook="docs/runbooks/OutboxStuck.md",
    seconds=30,
)
