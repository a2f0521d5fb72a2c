"""Elasticsearch applies a request and its reply is lost: the same versions are sent again, and nothing changes
twice."""

from __future__ import annotations

from labs.checks import at_least
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage


def fault(stage: Stage) -> None:
    stage.elastic_link.lose_replies(b"/_bulk", share=0.6)
    stage.mark("six of ten replies to bulk requests are lost", "fault")
    stage.wait_until(lambda: stage.elastic_link.counts["replies_lost"] >= 10, "replies are lost")
    stage.watch(5.0)


def lost(record: Record) -> float:
    return float(record.about["links"]["elasticsearch"].get("replies_lost", 0))


def sent_again(record: Record) -> float:
    return record.total("outbox_retry_scheduled_total")


EXPERIMENT = Experiment(
    name="es_reply_lost",
    title="Written, but the reply is lost",
    story="A connection breaks after Elasticsearch applied a request and before its reply. The outcome is unknown.",
    hypothesis=(
        "The outcome counts as unknown: the events are sent again with the same versions, which changes nothing;"
        " every document ends at its newest version, and no event fails."
    ),
    load=Load("mixed", rate=30),
    fault=fault,
    bit=at_least("replies lost after the request was applied", lost, 10, "record.json (links)"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        counters_are_true,
        recovered_within(30),
    ),
    finding=lambda record: f"{lost(record):.0f} replies were lost, {sent_again(record):.0f} events waited for a retry;",
    runbook="docs/runbooks/OutboxElasticsearchFailing.md",
    seconds=25,
)
