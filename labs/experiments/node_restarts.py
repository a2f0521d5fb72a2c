"""One node of a cluster after the other is restarted, killed or frozen: the others get its requests."""

from __future__ import annotations

from labs.checks import at_least, at_most, noted, when
from labs.cluster import is_green
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage
from outbox.embedded import EmbeddedSearch

ROUNDS = 4
START_SECONDS = 600.0  # a node takes 12 s alone, and minutes where others have the machine
P99_SECONDS = 10.0


def prepare(stage: Stage) -> None:
    """New nodes take seconds for their first requests on a busy machine; restarts are what is measured here. A node
    that was restarted is used as it is."""
    for _ in range(4 * len(stage.nodes)):
        stage.elastic.indices.get_alias(index=stage.index)


def fault(stage: Stage) -> None:
    """In turn, so that the master is among them; every other time without a goodbye."""
    for number in range(ROUNDS):
        node = stage.nodes[number % len(stage.nodes)]
        _restart(stage, node, kill=number % 2 == 1)
        stage.note("restarts", number + 1)


def _restart(stage: Stage, node: EmbeddedSearch, *, kill: bool) -> None:
    stage.mark(f"{node.url} {'killed' if kill else 'stopped'}", "fault")
    node.kill() if kill else node.stop()
    out = f"{node.url} is left out"
    stage.wait_until(lambda: _said(stage, "node.left_out", node) > _said(stage, "node.back", node), out)
    node.launch()
    # In this order: until the master notices, a cluster is green without one of its nodes.
    back = f"{node.url} is back"
    stage.wait_until(
        lambda: _said(stage, "node.left_out", node) == _said(stage, "node.back", node), back, START_SECONDS
    )
    stage.wait_until(lambda: is_green(stage.elastic, len(stage.nodes)), "the cluster is green", START_SECONDS)
    stage.watch(3.0)


def _said(stage: Stage, event: str, node: EmbeddedSearch) -> int:
    return sum(line.get("node") == node.url for line in stage.worker().facts(event))


def restore(stage: Stage) -> None:
    for node in stage.nodes:
        if not node.running:
            node.start()


def latencies(record: Record) -> list[float]:
    rows = [row for row in record.events.values() if row["processed_at"]]
    return sorted(when(row["processed_at"]) - when(row["created_at"]) for row in rows)


def p99(record: Record) -> float:
    found = latencies(record)
    return found[int(0.99 * (len(found) - 1))] if found else 0.0


def most_attempts(record: Record) -> float:
    return float(max(row["attempts"] for row in record.events.values()))


EXPERIMENT = Experiment(
    name="node_restarts",
    title="Nodes of a cluster are restarted one after the other",
    story="A rolling upgrade, or nodes that crash: of three nodes one is down at a time, and the projector knows all"
    " three.",
    hypothesis=(
        "The node that is down is left out, the others get its requests, and it is used again when it is back: no"
        " event spends a second attempt, none fails."
    ),
    load=Load("mixed", rate=50),
    # The defaults of a daemon: the labs' short times would hide what a restart costs.
    settings={
        "OUTBOX_LEASE_SECONDS": "60",
        "OUTBOX_SHUTDOWN_GRACE_SECONDS": "25",
        "ELASTIC_TIMEOUT_SECONDS": "30",
        "OUTBOX_OUTAGE_POLICY": "count",
    },
    nodes=3,
    index_settings={"number_of_shards": 3, "number_of_replicas": 1},
    prepare=prepare,
    fault=fault,
    restore=restore,
    bit=at_least("nodes that were left out", lambda r: len(r.said("node.left_out")), ROUNDS, "logs/w1.ndjson"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        at_least("restarts", noted("restarts"), ROUNDS, "record.json (notes)"),
        at_least("nodes that came back", lambda r: len(r.said("node.back")), ROUNDS, "logs/w1.ndjson"),
        at_most("attempts of any row", most_attempts, 1, "events.ndjson"),
        at_most("p99 from commit to done", p99, P99_SECONDS, "events.ndjson", " s"),
        counters_are_true,
        recovered_within(60),
    ),
    recovery_seconds=60.0,
    finding=lambda record: (
        f"{len(record.said('node.left_out'))} times a node was left out, p50"
        f" {latencies(record)[len(latencies(record)) // 2] * 1000:.0f} ms, p99 {p99(record) * 1000:.0f} ms, at most"
        f" {most_attempts(record):.0f} attempt;"
    ),
    runbook="docs/runbooks/OutboxElasticsearchFailing.md",
    needs="memory for three more nodes, about 3 GB",
    seconds=180,
)
