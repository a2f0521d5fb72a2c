"""Half of the index is unavailable: its items are retried, the others of the same request are done at once."""

from __future__ import annotations

from labs.checks import at_least, holds
from labs.experiment import CheckResult, Experiment
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

# No recovery at all: a removed primary shard stays unassigned while this is set.
RECOVERIES = "cluster.routing.allocation.node_initial_primaries_recoveries"


def fault(stage: Stage) -> None:
    """One of two primary shards is removed and cannot recover: its items get a real 503."""
    stage.servers.require_own("holds back recoveries of the whole cluster")
    stage.undo_later(lambda: stage.elastic.cluster.put_settings(persistent={RECOVERIES: None}))
    stage.elastic.cluster.put_settings(persistent={RECOVERIES: 0})
    node = next(iter(stage.elastic.nodes.info(metric="process")["nodes"].values()))["name"]
    cancel = {"cancel": {"index": stage.real_index, "shard": 0, "node": node, "allow_primary": True}}
    stage.elastic.cluster.reroute(commands=[cancel])
    stage.mark("one of two shards is unavailable", "fault")
    stage.table.burst(60)
    stage.wait_until(lambda: stage.total("outbox_es_bulk_requests_total{result=partial}") >= 3, "partial failures")
    stage.watch(5.0)


def partial(record: Record) -> float:
    return record.total("outbox_es_bulk_requests_total{result=partial}")


def neighbours_were_done(record: Record) -> CheckResult:
    """I16: batches during the fault settled both kinds together."""
    mixed = [line for line in record.said("batch.settled") if line["counts"].get("retried") and line["counts"]["done"]]
    done = sum(line["counts"]["done"] for line in mixed)
    observed = f"{len(mixed)} batches with both, {done} done in these"
    return holds("Other items are done", "done and retried in the same batch", observed, done > 0, "logs/w1.ndjson")


def told_by_class(record: Record) -> CheckResult:
    lines = record.said("bulk.partial_failure")
    seen = lines[0]["counts"] if lines else {}
    return holds(
        "The log counts by class", "bulk.partial_failure, transient", str(seen), "transient" in seen, "logs/w1.ndjson"
    )


EXPERIMENT = Experiment(
    name="es_bulk_partial",
    title="Some items of a bulk fail",
    story="A data node leaves and one shard has no primary for a while. A bulk reply is 200, and every other item in it"
    " is a 503.",
    hypothesis=(
        "Items of the missing shard wait for their retry; the others of the same request are done at once."
        " When the shard is back the rest arrives."
    ),
    load=Load("create", rate=20),
    index_settings={"number_of_shards": 2},
    settings={"ELASTIC_TIMEOUT_SECONDS": "2"},
    fault=fault,
    bit=at_least("partial bulk failures", partial, 3, "timeline.ndjson"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        neighbours_were_done,
        told_by_class,
        counters_are_true,
        recovered_within(30),
    ),
    finding=lambda record: f"{partial(record):.0f} bulk requests failed in part;",
    runbook="docs/runbooks/OutboxElasticsearchFailing.md",
    needs="servers of its own: it holds back a shard's recovery",
    seconds=30,
)
