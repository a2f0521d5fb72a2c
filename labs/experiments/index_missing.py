"""The alias is missing: no index is created with a guessed mapping, the projector pauses and waits for the alias."""

from __future__ import annotations

from typing import Any

from labs.checks import exactly
from labs.experiment import Experiment
from labs.experiments._pausing import in_time, no_attempt_spent, pause_is_said, paused, until_paused, waited
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.stage import Stage

CAUSE = "es_index_missing"


def fault(stage: Stage) -> None:
    stage.undo_later(lambda: _put_back(stage))
    stage.elastic.indices.update_aliases(actions=[{"remove": _alias(stage)}])
    stage.mark("the alias is removed", "fault")
    until_paused(stage, CAUSE)
    stage.watch(3.0)
    settings = _index_of_that_name(stage)
    stage.note("guessed", settings is not None and not stage.servers.server.dialect.is_auto_created(settings))


def _put_back(stage: Stage) -> None:
    """On OpenSearch a delete has made an index of that name, which is blocked and empty: as good as missing, but in the
    way of the alias. One request replaces it."""
    blocked = [] if _index_of_that_name(stage) is None else [{"remove_index": {"index": stage.index}}]
    add = {"add": {**_alias(stage), "is_write_index": True}}
    stage.elastic.indices.update_aliases(actions=[*blocked, add])


def _alias(stage: Stage) -> dict[str, Any]:
    return {"index": stage.real_index, "alias": stage.index}


def _index_of_that_name(stage: Stage) -> dict[str, Any] | None:
    """Its settings."""
    asking = stage.elastic.options(ignore_status=404).indices
    found = asking.get_settings(index=stage.index, flat_settings=True).get(stage.index)
    return dict(found["settings"]) if found else None


EXPERIMENT = Experiment(
    name="index_missing",
    title="The target is missing",
    story="A rebuild goes wrong and the alias is missing. By default Elasticsearch would create a new index, with a"
    " mapping that it guesses from the first document.",
    hypothesis=(
        "No index is created that takes documents. The target pauses with cause es_index_missing and no attempt is"
        " counted; when the alias is back everything arrives, deletes included."
    ),
    load=Load("delete-heavy", rate=30),
    fault=fault,
    bit=paused(CAUSE),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        no_attempt_spent,
        exactly(
            "an index of that name takes documents", lambda record: record.notes.get("guessed"), False, "record.json"
        ),
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
