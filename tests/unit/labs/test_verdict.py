"""PASS, FAIL or INCONCLUSIVE: each from a made-up record."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labs.checks import at_least
from labs.experiment import Experiment
from labs.invariants import (
    EVERYWHERE,
    LEGAL,
)
from labs.verdict import FAIL, INCONCLUSIVE, PASS, judge
from outbox.policy.event import TRANSITIONS
from tests.unit.labs.made_record import made_record, row


def experiment(**more: Any) -> Experiment:
    values: dict[str, Any] = {
        "name": "bad_op",
        "title": "t",
        "story": "s",
        "hypothesis": "h",
        "fault": lambda _: None,
        "bit": at_least("bites", lambda _: 1, 1, "here"),
        "invariants": EVERYWHERE,
        "least_events": 2,
    }
    return Experiment(**{**values, **more})


def test_all_held_and_the_fault_bit_is_a_pass(tmp_path: Path) -> None:
    verdict = judge(made_record(tmp_path), experiment())
    assert verdict.result == PASS, verdict
    assert "2 events committed, 2 done, 0 lost" in verdict.sentence


def test_one_violation_is_a_failure_that_names_it_first(tmp_path: Path) -> None:
    record = made_record(tmp_path, rows=[row("e1"), row("e2", "pending")])
    verdict = judge(record, experiment())
    assert verdict.result == FAIL
    assert verdict.sentence.startswith("Nothing is lost: expected every committed event is discarded or done")
    assert "seen 2 committed, 1 missing or not finished (1 done, 1 pending)" in verdict.sentence
    assert not verdict.findings[0].ok


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bit": at_least("bites", lambda _: 0, 1, "here")}, "had no effect"),
        ({"least_events": 3}, "too little load"),
    ],
)
def test_a_fault_that_did_not_bite_or_too_little_load_proves_nothing(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    verdict = judge(made_record(tmp_path), experiment(**changed))
    assert (verdict.result, said in verdict.sentence) == (INCONCLUSIVE, True)


@pytest.mark.parametrize("kind", ["interrupted", "server_died", "not_here", "no_steady_state", "broken_lab"])
def test_a_run_that_was_cut_short_is_judged_by_nothing_else(tmp_path: Path, kind: str) -> None:
    problem = {"kind": kind, "phase": "fault", "message": "because"}
    record = made_record(tmp_path, rows=[], problems=[problem])
    assert (judge(record, experiment()).result, judge(record, experiment()).findings) == (INCONCLUSIVE, [])


def test_an_expected_alert_that_did_not_fire_is_a_failure_where_someone_watched(tmp_path: Path) -> None:
    missing = experiment(expected_alerts=("OutboxDown",))
    assert judge(made_record(tmp_path), missing).result == FAIL
    fired = replace(missing, expected_alerts=("OutboxStuck",))
    assert judge(made_record(tmp_path), fired).result == PASS
    nobody = {"speed": 60.0, "spans": {}, "why_not": "no Prometheus"}
    assert judge(made_record(tmp_path, alerts=nobody), missing).result == PASS


def test_the_legal_steps_are_those_of_the_product_and_the_two_of_prune() -> None:
    """A row that is stored again by a Kafka record is none of them: labs write each event once."""
    steps = (step for step in TRANSITIONS if step.by != "reopen")
    product = {(str(transition.source), str(transition.target)) for transition in steps}
    assert product | {("done", None), ("discarded", None)} == LEGAL
