"""PASS, FAIL or INCONCLUSIVE: each from a made-up record."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from labs.checks import at_least
from labs.experiment import Experiment
from labs.invariants import (
    EVERYWHERE,
    LEGAL,
    converged,
    legal_steps,
    one_holder,
)
from labs.ledger import LedgerEntry
from labs.record import Record
from labs.verdict import FAIL, INCONCLUSIVE, PASS, judge
from outbox.policy.event import TRANSITIONS

BEGAN = 1_794_000_000.0
EVENTS = ("e1", "e2")


def row(event: str, status: str = "done") -> dict[str, Any]:
    common = {"id": event, "entity_type": "block", "entity_id": event, "op": "upsert", "event_version": 1}
    rest = {"attempts": 1, "replay_count": 0, "error_reason": None, "error": None, "digest": "d"}
    return {**common, **rest, "status": status}


def step(event: str, old: str, new: str, n: int = 1, owner: str = "w1") -> dict[str, Any]:
    held = {f"{age}_{what}": owner if status == "processing" else None
            for age, status in (("old", old), ("new", new)) for what in ("owner", "token")}  # fmt: skip
    about = {"at": f"2026-11-06T15:20:0{n}+00:00", "event_id": event, "who": owner, "app": "outbox-lanes"}
    counts = {"lease_left": 3.0, "old_attempts": 0, "attempts": 1, "abandoned": 0, "replays": 0}
    rest = {"n": n, "old_status": old, "new_status": new, "retries": False, "reason": None, "dead_reason": None}
    return {**about, **held, **counts, **rest}


def look(t: float, **status: int) -> dict[str, Any]:
    page = {"outbox_processed_total": float(status.get("done", 0)), "outbox_paused{cause=connect}": 0.0}
    worker = {"up": True, "ready": 200, "state": "ready", "m": page}
    return {"t": t, "phase": "fault", "status": status, "oldest": 1.0, "stuck": 0, "workers": {"w1": worker}}


def made_record(folder: Path, rows: Sequence[dict[str, Any]] | None = None, **about: Any) -> Record:
    """The folder of a run: two events that are done, unless given otherwise."""
    claims = [step(event, "pending", "processing", 1) for event in EVENTS]
    files: dict[str, Sequence[Any]] = {
        "ledger": [asdict(LedgerEntry(event, "block", event, "upsert", 1, "d", BEGAN + 1)) for event in EVENTS],
        "events": [row(event) for event in EVENTS] if rows is None else rows,
        "steps": claims + [step(event, "processing", "done", 2) for event in EVENTS],
        "documents": [{"_id": f"block:{event}", "found": True, "version": 1, "digest": "d"} for event in EVENTS],
        "timeline": [look(n, done=n) for n in range(9)],
        **dict.fromkeys(("leases", "attempts", "audit"), ()),
    }
    files |= {name: about.pop(name) for name in files if name in about}
    for name, lines in files.items():
        (folder / f"{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "logs").mkdir(exist_ok=True)
    usual = {"experiment": "bad_op", "began_at": BEGAN, "notes": {"recovery_seconds": 1.0}, "problems": []}
    spans = {"OutboxStuck": [[3.0, 4.0, "pending"], [4.0, 6.0, "firing"]]}
    usual |= {"exit_codes": {"w1": 0}, "alerts": {"speed": 60.0, "spans": spans, "why_not": ""}}
    (folder / "record.json").write_text(json.dumps({**usual, **about}))
    return Record(folder)


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


@pytest.mark.parametrize("kind", ["worker_died", "late"])
def test_a_daemon_that_died_or_a_recovery_that_never_came_is_a_failure(tmp_path: Path, kind: str) -> None:
    record = made_record(tmp_path, problems=[{"kind": kind, "phase": "recovery", "message": "it ended"}])
    assert judge(record, experiment()).result == FAIL


def test_a_document_of_an_older_version_is_no_convergence(tmp_path: Path) -> None:
    old = [{"_id": "block:e1", "found": True, "version": 0, "digest": "d"}, {"_id": "block:e2", "found": False}]
    found = converged(made_record(tmp_path, documents=old))
    assert (found.ok, found.observed, found.event) == (False, "2 documents compared, 2 differ", "e1")


def test_a_step_that_the_state_machine_does_not_know_is_found(tmp_path: Path) -> None:
    assert not legal_steps(made_record(tmp_path, steps=[step("e1", "done", "processing")])).ok


def holding(*steps: dict[str, Any], folder: Path) -> tuple[bool, str | None]:
    found = one_holder(made_record(folder, steps=steps))
    return found.ok, found.event


def test_a_settle_by_another_worker_is_found(tmp_path: Path) -> None:
    claim = step("e1", "pending", "processing", owner="w2")
    settle = step("e1", "processing", "done", 3, owner="w2")
    assert holding(claim, settle | {"who": "w1"}, folder=tmp_path) == (False, "e1")
    assert holding(claim, settle | {"who": None}, folder=tmp_path) == (False, "e1")
    assert holding(claim, settle, folder=tmp_path) == (True, None)


@pytest.mark.parametrize("by", [{"app": "outbox-chores", "who": "w2"}, {"app": "outbox verify", "who": "people"}])
def test_a_reclaim_before_the_lease_is_over_is_found(by: dict[str, str], tmp_path: Path) -> None:
    claim, back = step("e1", "pending", "processing"), step("e1", "processing", "pending", 2) | by
    assert holding(claim, back | {"lease_left": 0.1}, folder=tmp_path)[0] is False
    assert holding(claim, back | {"lease_left": -0.1}, folder=tmp_path)[0] is True
