"""The alias is missing: no index is created with a guessed mapping, the projector pauses and waits for the alias."""

from __future__ import annotations

from labs.checks import exactly
from labs.experiment import Experiment
from labs.experiments._pausing import in_time, no_attempt_spent, pause_is_said, paused, until_paused, waited
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.stage import Stage

CAUSE = "es_index_missing"


def fault(stage: Stage) -> None:
    stage.undo_later(lambda: _alias(stage, {"add": {"is_write_index": True}}))
    _alias(stage, {"remove": {}})
    stage.mark("the alias is removed", "fault")
    until_paused(stage, CAUSE)
    stage.watch(3.0)
    stage.note("guessed", bool(stage.elastic.indices.exists(index=stage.index)))


def _alias(stage: Stage, action: dict[str, dict[str, bool]]) -> None:
    actions = [{op: {"index": stage.real_index, "alias": stage.index, **more}} for op, more in action.items()]
    stage.elastic.indices.update_aliases(actions=actions)


EXPERIMENT = Experiment(
    name="index_missing",
    title="The target is missing",
    story="A rebuild goes wrong and the alias is missing. By default Elasticsearch would create a new index, with a"
    " mapping that it guesses from the first document.",
    hypothesis=(
        "No index is created. The target pauses with cause es_index_missing and no attempt is counted; when the alias"
        " is back everything arrives, deletes included."
    ),
    load=Load("delete-heavy", rate=30),
    fault=fault,
    bit=paused(CAUSE),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        no_attempt_spent,
        exactly("an index of that name was created", lambda record: record.notes.get("guessed"), False, "record.json"),
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
