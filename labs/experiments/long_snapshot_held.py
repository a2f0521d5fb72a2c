"""Another session holds an old snapshot while thousands of events are processed: claims stay fast."""

from __future__ import annotations

import psycopg

from labs.checks import at_least, at_most, noted
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

ROUNDS, EACH = 5, 2000
OPEN = "processed_at is null and failed_at is null"


def fault(stage: Stage) -> None:
    """A snapshot that is never released: PostgreSQL may remove nothing that it could still see."""
    with psycopg.connect(stage.table.database_url) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select count(*) from search_outbox_events")
        stage.mark("another session holds a snapshot", "fault")
        for _ in range(ROUNDS):
            stage.table.burst(EACH)
            stage.wait_until(lambda: stage.table.count(OPEN) < 100, "a round is done")
        stage.note("not_removable", _not_removable(stage))


def _not_removable(stage: Stage) -> int:
    """The rows that VACUUM reports as not removable."""
    said: list[str] = []
    with stage.table.connect() as connection:
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        connection.execute("vacuum (verbose) search_outbox_events")
    numbers = "".join(said).split("tuples: ")[1].split(" are dead but not yet removable")[0].split()
    return int(numbers[-1])


def slow_claims(record: Record) -> float:
    """The 99th percentile of all claims, from the log."""
    took = sorted(float(line["duration_ms"]) for line in record.said("batch.claimed"))
    return took[int(len(took) * 0.99)] if took else 1e9


EXPERIMENT = Experiment(
    name="long_snapshot_held",
    title="An old snapshot is held",
    story="A report, a backup or a forgotten psql keeps a transaction open for hours. Dead row versions pile up in the"
    " queue's indexes, and queues on PostgreSQL become very slow.",
    hypothesis=(
        "Claims start where the last one ended, not at the beginning of the index: they stay fast although nothing can"
        " be vacuumed, and the backlog is done."
    ),
    load=Load("create", rate=20),
    settings={"OUTBOX_BATCH_SIZE": "200"},
    fault=fault,
    bit=at_least("dead row versions that cannot be removed", noted("not_removable"), 10_000, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        at_most("claim, 99th percentile", slow_claims, 250, "logs/w1.ndjson", " ms"),
        counters_are_true,
        recovered_within(20),
    ),
    finding=lambda record: (
        f"99 of 100 claims took less than {slow_claims(record):.0f} ms over"
        f" {record.notes['not_removable']} dead row versions;"
    ),
    runbook="docs/runbooks/OutboxLagNotFalling.md",
    seconds=35,
)
