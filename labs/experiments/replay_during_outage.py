"""Two operators replay the same failed events while Elasticsearch is down: each is replayed once and delivered
later."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from labs.checks import at_least, holds, nobody, noted
from labs.experiment import CheckResult, Experiment
from labs.experiments._pausing import no_attempt_spent, paused
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage
from labs.worker import ROOT, environment

COUNT = 30
FAILED = "failed_at is not null"
OPERATORS = ("alice", "bob")


def fault(stage: Stage) -> None:
    """Rows that the mapping rejected, a corrected mapping, an outage; then both replay at the same time."""
    stage.idle()
    stage.table.burst(COUNT, {"colour": "red"})
    stage.wait_until(lambda: stage.table.count(FAILED) == COUNT, "rows failed")
    stage.note("failed", stage.table.count(FAILED))
    stage.elastic.indices.put_mapping(index=stage.real_index, properties={"colour": {"type": "keyword"}})
    stage.elastic_link.cut()
    stage.mark("Elasticsearch cut off", "fault")
    stage.producer.resume()
    stage.note("exit_codes", _replay_at_once(stage))
    stage.note("failed_after", stage.table.count(FAILED))
    stage.wait_until(lambda: stage.total("outbox_paused{cause=connect}") > 0, "paused by the outage")
    stage.watch(3.0)


def _replay_at_once(stage: Stage) -> dict[str, int]:
    started = {}
    for name in OPERATORS:
        command = [sys.executable, "-m", "outbox", "replay", "--by", name, "--reason", "mapping corrected"]
        env = environment(stage.settings())
        started[name] = subprocess.Popen(
            command, env=env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    stage.mark("alice and bob replay", "act")
    return {name: process.wait(60) for name, process in started.items()}


def restore(stage: Stage) -> None:
    stage.producer.resume()


def replayed_once(record: Record) -> CheckResult:
    rows = {id: row["replay_count"] for id, row in record.events.items() if row["replay_count"]}
    wrong = [id for id, n in rows.items() if n != 1]
    observed = f"{len(rows)} rows replayed, {len(wrong)} more than once"
    return nobody("Replayed once", f"each of {COUNT} rows once", observed, wrong, "events.ndjson")


def audit_is_exact(record: Record) -> CheckResult:
    """I12."""
    items = Counter(row["event_id"] for row in record.audit if row["action"] == "REPLAY_BATCH_ITEM")
    observed = f"{len(items)} rows with an item, {sum(items.values())} items"
    ok = len(items) == COUNT and set(items.values()) == {1}
    return holds("The audit is exact", f"one item for each of {COUNT} rows", observed, ok, "audit.ndjson")


EXPERIMENT = Experiment(
    name="replay_during_outage",
    title="Two operators replay during an outage",
    story="Two people read the same alert and both replay. At that moment Elasticsearch goes down.",
    hypothesis=(
        "Each row is replayed once, by one of them; under the outage policy `pause` no attempt is counted, and all of"
        " them are delivered when Elasticsearch is back."
    ),
    load=Load("create", rate=30),
    mapping={"dynamic": "strict"},
    settings={"OUTBOX_OUTAGE_POLICY": "pause"},
    fault=fault,
    restore=restore,
    bit=paused("connect"),
    invariants=(
        *EVERYWHERE,
        at_least("rows that had failed", noted("failed"), COUNT, "record.json (notes)"),
        nothing_failed,
        replayed_once,
        audit_is_exact,
        no_attempt_spent,
        recovered_within(30),
    ),
    expected_alerts=("OutboxPaused",),
    finding=lambda record: f"{COUNT} failed rows were replayed by two people at once, each row once;",
    runbook="docs/runbooks/OutboxReplayFailingAgain.md",
    seconds=30,
)
