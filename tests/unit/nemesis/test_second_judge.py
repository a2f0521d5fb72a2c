"""Two judges, written apart, agree on every forged history: each is a good one with one violation, or none."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nemesis import agreement, second_judge
from tests.nemesis.load import is_bad
from tests.unit.nemesis.test_judge import BREAKS, GOOD, Files, history, step, written

Forge = Callable[[dict[str, Any], Files], None]
# What no history shows: commands, samples, metrics, logs, batches.
BESIDE_IT = {"find_drift", "be_stuck", "never_drain"}
FORGED = [
    (rule, forge)
    for number, forge in BREAKS
    if (rule := number.strip()) in second_judge.RULES and rule != "I17"
    if forge.__name__ not in BESIDE_IT
]


def opinion(folder: Path, forge: Forge) -> agreement.SecondOpinion:
    about, files = history()
    forge(about, files)
    written(folder, about, files)
    return agreement.ask(*agreement.evidence(folder))


def test_there_are_thirty_forged_histories_and_one_for_each_rule_of_both() -> None:
    assert len(FORGED) >= 30
    assert {rule for rule, _ in FORGED} == set(second_judge.RULES) - {"I17"}


@pytest.mark.parametrize(("rule", "forge"), FORGED, ids=lambda value: getattr(value, "__name__", value))
def test_both_judges_find_the_same_broken_rules(rule: str, forge: Forge, tmp_path: Path) -> None:
    found = opinion(tmp_path, forge)
    assert found.agrees, str(found)
    assert rule in found.second


def nothing(about: dict[str, Any], files: Files) -> None:
    """A good history as it is."""


def an_answer_was_lost_and_the_commit_happened(about: dict[str, Any], files: Files) -> None:
    files["ledger"][0]["committed"] = False


def an_answer_was_lost_and_nothing_happened(about: dict[str, Any], files: Files) -> None:
    files["ledger"].append({**files["ledger"][0], "id": str(uuid.uuid4()), "version": 9, "committed": False})


def it_was_pruned(about: dict[str, Any], files: Files) -> None:
    files["events"].pop(0)
    files["steps"].append(step(GOOD, "done", None))


def it_was_reclaimed_once(about: dict[str, Any], files: Files) -> None:
    again = [
        step(GOOD, "processing", "pending", app="outbox-chores", who="w2.1", lease_left=-0.2),
        step(GOOD, "pending", "processing", old_token="t1", new_token="t2", who="w2.1", attempts=2),
        step(GOOD, "processing", "done", old_token="t2", new_token="t2", who="w2.1", attempts=2),
    ]
    files["steps"][1:2] = again


def a_refused_one_was_replayed(about: dict[str, Any], files: Files) -> None:
    bad = next(id for n in range(10_000) if is_bad(id := str(uuid.UUID(int=n))))
    for rows in (files["ledger"], files["events"], files["steps"]):
        for row in rows:
            row.update({key: bad for key in ("id", "event_id") if row.get(key) == GOOD})
    files["steps"][1:2] = [
        step(bad, "processing", "failed", dead_reason="non_retryable"),
        step(bad, "failed", "pending", attempts=0, replays=1, app="outbox cli", who="people"),
        step(bad, "pending", "processing", old_token="t1", new_token="t3"),
        step(bad, "processing", "done", old_token="t3", new_token="t3"),
    ]
    files["audit"].append({"action": "REPLAY_BATCH_ITEM", "event_id": bad})


def a_restart_forgot_what_was_not_synced(about: dict[str, Any], files: Files) -> None:
    files["seen"].append({"at": 12.0, "before": 9.0, "life": 1, "index": "i", "changed": {"page:e1": 4}})


VALID = (
    *(nothing, an_answer_was_lost_and_the_commit_happened, an_answer_was_lost_and_nothing_happened, it_was_pruned),
    *(it_was_reclaimed_once, a_refused_one_was_replayed, a_restart_forgot_what_was_not_synced),
)


@pytest.mark.parametrize("forge", VALID, ids=lambda forge: forge.__name__)
def test_both_judges_accept_what_is_allowed(forge: Forge, tmp_path: Path) -> None:
    found = opinion(tmp_path, forge)
    assert (found.first, found.second) == ([], [])


def test_the_second_judge_shares_nothing_with_the_first() -> None:
    text = Path(second_judge.__file__).read_text(encoding="utf-8")
    imported = [
        name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    ]
    assert not [name for name in imported if str(name).split(".")[0] in ("tests", "labs", "outbox")]
    assert len(text.splitlines()) < 200


def test_only_what_was_committed_is_written() -> None:
    lines = [
        {"kind": "run", "source": "table", "most_attempts": 5},
        {"kind": "write", "index": "i", "document": "page:e1", "op": "index", "version": 5, "times": 1},
    ]
    assert second_judge.judge(lines) == {"I17": ["page:e1 at 5"]}


def test_a_delete_of_version_0_asks_about_a_document_that_was_committed() -> None:
    commit = {"kind": "commit", "event": "a", "document": "page:e1", "op": "upsert", "version": 5, "digest": "d"}
    lines = [
        {"kind": "run", "source": "table", "most_attempts": 5},
        {**commit, "answered": True, "refusable": False},
        {"kind": "write", "index": "i", "document": "page:e1", "op": "delete", "version": 0, "times": 2},
    ]
    assert "I17" not in second_judge.judge(lines)
    assert second_judge.judge([*lines, {**lines[2], "op": "index"}])["I17"] == ["page:e1 at 0"]
    assert second_judge.judge([*lines, {**lines[2], "document": "page:e2"}])["I17"] == ["page:e2 at 0"]


def test_a_refresh_that_was_lost_with_its_server_may_have_been_written_before() -> None:
    asked = {"kind": "commit", "event": "a", "document": "joined:p1", "op": "refresh", "version": 0, "digest": ""}
    lines = [
        {"kind": "run", "source": "table", "most_attempts": 5},
        {**asked, "answered": False, "refusable": False},
        {"kind": "write", "index": "i", "document": "joined:p1", "op": "delete", "version": 562, "times": 1},
    ]
    assert second_judge.judge(lines) == {}
    assert second_judge.judge([lines[0], lines[2]]) == {"I17": ["joined:p1 at 562"]}
