"""Elasticsearch is slow: batches take longer than a lease, and the heartbeat renews it."""

from __future__ import annotations

from labs.checks import at_least, at_most
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

LEASE, DELAY = 3, 1.2


def fault(stage: Stage) -> None:
    """Small requests, so that a batch needs several, and each takes more than a second."""
    stage.elastic_link.slow(DELAY)
    stage.mark(f"every reply takes {DELAY} s longer", "fault")
    stage.table.burst(150)
    long_batch = f"a batch takes longer than its lease of {LEASE} s"
    stage.wait_until(lambda: _longest(stage) > LEASE, long_batch)
    stage.watch(2.0)


def _longest(stage: Stage) -> float:
    return max((fact["duration_ms"] / 1000 for fact in stage.worker().facts("batch.settled")), default=0.0)


def longest_batch(record: Record) -> float:
    return max((line["duration_ms"] / 1000 for line in record.said("batch.settled")), default=0.0)


def delayed(record: Record) -> float:
    return float(record.about["links"]["elasticsearch"].get("delayed", 0))


EXPERIMENT = Experiment(
    name="es_slow",
    title="Elasticsearch is slow",
    story="A merge, a busy disk, a long garbage collection: every bulk takes a second more, and a batch takes longer"
    " than its lease.",
    hypothesis=(
        f"The heartbeat renews the {LEASE} s lease during the work: batches run longer than their lease and lose"
        " nothing, no other daemon reclaims their rows, and no event is sent twice."
    ),
    load=Load("mixed", rate=10),
    settings={
        "OUTBOX_LEASE_SECONDS": str(LEASE),
        "OUTBOX_BATCH_BYTES": "2048",
        "ELASTIC_TIMEOUT_SECONDS": "2",
    },
    fault=fault,
    bit=at_least("replies delayed", delayed, 5, "record.json (links)"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        at_least("the longest batch", longest_batch, LEASE, "logs/w1.ndjson", " s"),
        at_most("outbox_lease_lost_total", lambda r: r.total("outbox_lease_lost_total"), 0, "timeline.ndjson"),
        at_most("outbox_reclaimed_total", lambda r: r.total("outbox_reclaimed_total"), 0, "timeline.ndjson"),
        at_most("attempts of any row", lambda r: max(row["attempts"] for row in r.events.values()), 1, "events.ndjson"),
        counters_are_true,
        recovered_within(30),
    ),
    finding=lambda record: f"The longest batch took {longest_batch(record):.1f} s on a lease of {LEASE} s;",
    runbook="docs/runbooks/OutboxOldestAge.md",
    seconds=30,
)
