"""Connections to PostgreSQL break at random moments, hang, and are terminated by the server: nothing stays stuck."""

from __future__ import annotations

from labs.checks import at_least
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

TERMINATE = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
 where datname = current_database() and application_name like 'outbox-%%'
"""


def fault(stage: Stage) -> None:
    link = stage.database_link
    for round_ in range(6):
        stage.watch(0.7 + 0.13 * round_)
        link.drop()
    stage.mark("connections reset six times", "fault")
    stage.note("terminated", stage.table.value(TERMINATE))
    stage.mark("backends terminated", "fault")
    stage.watch(1.5)
    link.stall()
    stage.mark("connections hang", "fault")
    stage.watch(4.0)
    link.heal()
    stage.watch(1.0)


def dropped(record: Record) -> float:
    return float(record.about["links"]["postgresql"].get("dropped", 0))


EXPERIMENT = Experiment(
    name="db_connections_cut",
    title="Connections to PostgreSQL break",
    story="A pooler restarts, a network drops idle connections, an administrator terminates backends: claims and"
    " settles lose their replies, some during a commit.",
    hypothesis=(
        "The rows of a claim without a reply are reclaimed when its lease expires; a settle without a reply is repeated"
        " under the same token. Nothing is stuck, lost or done twice."
    ),
    load=Load("mixed", rate=40),
    database_link=True,
    settings={"OUTBOX_LEASE_SECONDS": "4"},
    fault=fault,
    bit=at_least("connections broken", dropped, 6, "record.json (links)"),
    invariants=(*EVERYWHERE, nothing_failed, recovered_within(30)),
    finding=lambda record: f"{dropped(record):.0f} connections were broken;",
    runbook="docs/runbooks/OutboxStalled.md",
    seconds=30,
)
