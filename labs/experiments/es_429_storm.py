"""Elasticsearch is overloaded and answers 429 to everything: requests shrink and slow down, and no event fails."""

from __future__ import annotations

from labs.checks import at_least, at_most
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

# A real circuit breaker: a larger request is refused with 429. Settings requests are exempt.
BREAKER = "network.breaker.inflight_requests.limit"


def fault(stage: Stage) -> None:
    stage.servers.require_own("sets a circuit breaker of the whole cluster")
    stage.undo_later(lambda: stage.elastic.cluster.put_settings(persistent={BREAKER: None}))
    stage.elastic.cluster.put_settings(persistent={BREAKER: "200b"})
    stage.mark("Elasticsearch answers 429", "fault")
    stage.table.burst(300)
    stage.wait_until(lambda: stage.total("outbox_es_bulk_requests_total{result=refused}") >= 8, "429s")
    stage.watch(6.0)


def refused(record: Record) -> float:
    return record.total("outbox_es_bulk_requests_total{result=refused}")


def smallest_limit(record: Record) -> float:
    return record.least("outbox_batch_limit", "fault") or 50.0


def limit_at_the_end(record: Record) -> float:
    return record.most("outbox_batch_limit", "quiesce")


def requests_a_second(record: Record) -> float:
    """Requests per second while they were refused."""
    began, ended = record.phase("fault") or (0.0, 1.0)
    return record.total("outbox_es_bulk_requests_total{result=refused}", "fault") / max(ended - began, 1.0)


EXPERIMENT = Experiment(
    name="es_429_storm",
    title="A storm of 429",
    story="A reindex, a heavy dashboard, a node short of heap: Elasticsearch refuses every bulk with 429 for a while.",
    hypothesis=(
        "Batches shrink to less than half, lanes slow down, no event fails, and the size grows"
        " back when the storm is over."
    ),
    load=Load("mixed", rate=30),
    fault=fault,
    bit=at_least("bulk requests refused", refused, 8, "timeline.ndjson"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        at_most("outbox_batch_limit fell to", smallest_limit, 25, "timeline.ndjson"),
        at_least("outbox_batch_limit grew back to", limit_at_the_end, 10, "timeline.ndjson"),
        at_most("refused requests per second", requests_a_second, 6, "timeline.ndjson"),
        counters_are_true,
        recovered_within(30),
    ),
    expected_alerts=("OutboxElasticsearchFailing",),
    finding=lambda record: (
        f"{refused(record):.0f} requests were refused and the batch limit fell from 50 to {smallest_limit(record):.0f};"
    ),
    runbook="docs/runbooks/OutboxElasticsearchFailing.md",
    needs="servers of its own: it sets a circuit breaker",
    seconds=30,
)
