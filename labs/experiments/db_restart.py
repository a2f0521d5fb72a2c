"""PostgreSQL crashes, and later restarts in an orderly way: the projector waits, recovers, and loses nothing."""

from __future__ import annotations

from functools import partial

from labs.checks import at_least, at_most, holds, noted
from labs.experiment import CheckResult, Experiment
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

DONE = "status = 'done'"


def fault(stage: Stage) -> None:
    server = stage.servers.postgres()
    stage.servers.expect_down("postgresql")
    for how, end in (("kill -9", server.kill), ("fast stop", server.stop)):
        done = stage.table.count(DONE)
        end()
        stage.mark(f"PostgreSQL: {how}", "kill")
        stage.watch(1.5)
        server.start()
        began = stage.mark("PostgreSQL started", "start")
        stage.wait_until(partial(_more_than, stage, done), "events are done again")
        stage.note(how, round(stage.story.now() - began, 2))


def _more_than(stage: Stage, done: int) -> bool:
    return stage.table.count(DONE) > done


def back_after(record: Record) -> float:
    return max(float(record.notes.get("kill -9", 99)), float(record.notes.get("fast stop", 99)))


def stayed_up(record: Record) -> CheckResult:
    starts = len(record.said("worker.started"))
    return holds("The daemon stays up", "one start", f"{starts} starts", starts == 1, "logs/w1.ndjson")


EXPERIMENT = Experiment(
    name="db_restart",
    title="PostgreSQL restarts",
    story="A minor upgrade, a failover, the kernel's out-of-memory killer: every connection breaks at once, commits"
    " without a reply among them.",
    hypothesis=(
        "The daemon reports that the database is lost, stays up, and works again within ten seconds after its return."
        " What was committed arrives, what was not does not."
    ),
    load=Load("mixed", rate=30),
    fault=fault,
    bit=at_least("seconds until events were done again", noted("kill -9"), 0.001, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        at_most("working again after", back_after, 10, "record.json (notes)", " s"),
        at_least("database.lost in the log", lambda r: len(r.said("database.lost")), 1, "logs/w1.ndjson"),
        stayed_up,
        recovered_within(30),
    ),
    finding=lambda record: f"Events were done again {back_after(record):.1f} s after PostgreSQL was back;",
    runbook="docs/runbooks/OutboxStalled.md",
    needs="the embedded PostgreSQL: it kills and starts it",
    seconds=25,
)
