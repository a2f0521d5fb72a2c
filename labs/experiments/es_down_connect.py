"""The guide's lab 2: Elasticsearch is down, and retries are slow and spread out until it is back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

from labs.checks import at_least, noted
from labs.experiment import CheckResult, Experiment, Guide
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

BASE, CAP = 0.5, 4.0
WAITING: LiteralString = "status = 'pending' and next_retry_at > now() and error_reason in ('connect', 'timeout')"
DUE_TIMES = "select count(distinct next_retry_at) from search_outbox_events where " + WAITING


def fault(stage: Stage) -> None:
    stage.elasticsearch_away()
    stage.wait_until(lambda: stage.table.count(WAITING) >= 20, "retries are scheduled")
    stage.note("waiting", stage.table.count(WAITING))
    stage.note("due_times", stage.table.value(DUE_TIMES))
    stage.watch(10.0)
    stage.producer.pause()  # the server takes a while to start; the backlog is large enough


def after(stage: Stage) -> None:
    stage.producer.resume()
    done = stage.table.count("status = 'done'")
    stage.wait_until(lambda: stage.table.count("status = 'done'") > done, "new events are done")


def retries(record: Record) -> float:
    return record.total("outbox_retry_scheduled_total")


def attempts_bounded(record: Record) -> CheckResult:
    """Half of each wait is fixed: base/2, then doubling up to cap/2. This limits the attempts of a row."""
    began, ended = record.phase("fault") or (0.0, 0.0)
    left, wait, most = ended - began + 20, BASE / 2, 2
    while left > 0:
        left, wait, most = left - wait, min(CAP / 2, wait * 2), most + 1
    seen = max(int(row["attempts"]) for row in record.events.values())
    return CheckResult("Attempts stay few", f"at most {most} per row", f"{seen} at most", seen <= most, "events.ndjson")


def conclusion(record: Record) -> Sequence[tuple[str, str]]:
    grew, few = retries(record) > 0, attempts_bounded(record).ok
    return (
        (
            "Fault injected by",
            f"{record.server.product.shown} {record.notes.get('away_by')} for {record.fault_seconds:.0f} s",
        ),
        ("The retry metric grows", "yes" if grew else "no"),
        ("Attempts stay under control", "yes" if few else "no"),
        ("v2 backoff and jitter", "OK" if grew and few and nothing_failed(record).ok else "FAIL"),
    )


EXPERIMENT = Experiment(
    name="es_down_connect",
    title="Elasticsearch is down",
    story="A node is restarted, a load balancer loses its backend, a firewall rule is wrong. Producers continue"
    " committing.",
    hypothesis=(
        "Events wait as `pending` with a growing, jittered `next_retry_at`; attempts stay few, none fails, and the"
        " backlog drains automatically once Elasticsearch answers."
    ),
    load=Load("mixed", rate=30),
    settings={"OUTBOX_BASE_BACKOFF_SECONDS": str(BASE), "OUTBOX_MAX_BACKOFF_SECONDS": str(CAP)},
    fault=fault,
    after=after,
    bit=at_least("rows waiting for a retry", noted("waiting"), 20, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        at_least("outbox_retry_scheduled_total", retries, 20, "timeline.ndjson"),
        attempts_bounded,
        at_least("different due times of waiting rows", noted("due_times"), 10, "record.json (notes)"),
        counters_are_true,
        recovered_within(60),
    ),
    expected_alerts=("OutboxElasticsearchFailing",),
    finding=lambda record: f"{retries(record):.0f} retries were scheduled in {record.fault_seconds:.0f} s;",
    guide=Guide(2, "5.4", "v2", conclusion),
    runbook="docs/runbooks/OutboxElasticsearchFailing.md",
    seconds=60,
)
