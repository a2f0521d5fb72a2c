"""Someone blocks writes to the index: the projector pauses, reports why, counts no attempt, and resumes
automatically."""

from __future__ import annotations

from labs.experiment import Experiment
from labs.experiments._pausing import in_time, no_attempt_spent, pause_is_said, paused, until_paused, waited
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.stage import Stage

CAUSE = "es_blocked"


def fault(stage: Stage) -> None:
    stage.undo_later(lambda: _block(stage, False))
    _block(stage, True)
    stage.mark("index.blocks.write is set", "fault")
    until_paused(stage, CAUSE)
    stage.watch(3.0)


def _block(stage: Stage, on: bool) -> None:
    stage.elastic.indices.put_settings(index=stage.real_index, settings={"index.blocks.write": on})


EXPERIMENT = Experiment(
    name="es_write_block",
    title="Writes to the index are blocked",
    story="Before a migration someone sets index.blocks.write; or the disk fills up and Elasticsearch does it by"
    " itself.",
    hypothesis=(
        "The whole target pauses with cause es_blocked, in the log, a metric and /readyz; rows keep their attempts, and"
        " projection resumes automatically within seconds after the end of the block."
    ),
    load=Load("mixed", rate=30),
    fault=fault,
    bit=paused(CAUSE),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        no_attempt_spent,
        pause_is_said(CAUSE),
        in_time,
        counters_are_true,
        recovered_within(20),
    ),
    expected_alerts=("OutboxPaused",),
    finding=waited,
    runbook="docs/runbooks/OutboxPaused.md",
    seconds=25,
)
