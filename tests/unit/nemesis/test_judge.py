"""The judge of the nemesis finds what it is there to find: each invariant is broken once, by hand, in a history."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labs.producing import CANARY
from tests.nemesis.evidence import Evidence
from tests.nemesis.invariants import CHECKS
from tests.nemesis.schedule import FAULTS, PEOPLE
from tests.nemesis.verdict import judge

GOOD, DELETED = "019a0000-0000-7000-8000-000000000001", "019a0000-0000-7000-8000-000000000002"
KEPT, GONE = "019a0000-0000-7000-8000-000000000003", "019a0000-0000-7000-8000-000000000004"
MOVED, BANNED = "019a0000-0000-7000-8000-000000000005", "019a0000-0000-7000-8000-000000000006"
OWED = "019a0000-0000-7000-8000-000000000007"
RENAMED, BOOK = "019a0000-0000-7000-8000-000000000008", "019a0000-0000-7000-8000-00000000000a"
ABOUT = {"seed": 1, "commit": "c", "postgresql": "1", "elasticsearch": "1", "python": "3", "clock": "libfaketime"}
Row = dict[str, Any]
Files = dict[str, list[Row]]
Break = Callable[[dict[str, Any], Files], Any]
HELD, BACK, FAILED = ("processing", "processing"), ("processing", "pending"), ("processing", "failed")
USED_UP, FINAL = "max_attempts_exceeded", "non_retryable"
REPLAYED = {"action": "REPLAY_BATCH_ITEM", "event_id": GOOD}


def step(event: str, old: str, new: str | None, **more: Any) -> dict[str, Any]:
    return {
        "at": 10.0,
        "event_id": event,
        "who": "w1.1",
        "app": "outbox-lanes",
        "old_status": old,
        "new_status": new,
        "old_token": "t1",
        "new_token": "t1",
        "lease_left": 2.0,
        "old_attempts": 1,
        "attempts": 1,
        "abandoned": 0,
        "replays": 0,
        "reason": None,
        "dead_reason": None,
        **more,
    }


def history() -> tuple[dict[str, Any], Files]:
    """An upsert, a delete, and refreshes of documents of the view, one without and one with a routing, and of two that
    are not there; all done. The last three are an attached table's and daemons': a fan-out, the refresh that it wrote,
    and one that was owed."""
    about = {
        "minutes": 2,
        "refused_attempts": 0,
        "joined_swapped": 1,
        "routed_swapped": 1,
        "linked_swapped": 1,
        "looks": 1,
        "wire_targets": {"nemesis": 2},
        "wire_again": 0,
        "wire_sent": 2,
        "wire_strangers": [],
        "exit_codes": {"w1.1": 0},
        "crashed_commands": [],
        "problems": [],
        "healed": 50.0,
        "storm_ended": 40.0,
        "backlog": 7,
        "lease_seconds": 3.0,
        "max_attempts": 50,
        "drain_seconds": 1.0,
        "coda_counted": 5.0,
        "coda_steps": 5,
        "final_verify": {"code": 0},
        "audit_verify": {"code": 0},
        "password_seen": 0,
        "canary_seen": 0,
        "answers": 3,
        "neighbour_before": "same",
        "neighbour_after": "same",
    }
    entries = [(GOOD, "page", "e1", "upsert", 5, "d5"), (DELETED, "page", "e2", "delete", 6, "")]
    entries += [(KEPT, "joined", "p1", "refresh", 0, ""), (GONE, "joined", "p2", "refresh", 0, "")]
    entries += [(MOVED, "order", "o1", "refresh", 0, ""), (BANNED, "order", "o2", "refresh", 0, "")]
    entries += [(RENAMED, "book", "a1", "fanout", 0, ""), (BOOK, "book", "b1", "refresh", 0, "")]
    entries += [(OWED, "order", "o1", "refresh", 0, "")]
    ledger = [
        {"id": i, "entity_type": t, "entity_id": e, "op": o, "version": v, "digest": d, "at": 1.0}
        for i, t, e, o, v, d in entries
    ]
    steps = [
        one
        for i, *_ in entries
        for one in (step(i, "pending", "processing", old_token=None), step(i, "processing", "done"))
    ]
    files: Files = {
        "ledger": ledger[:-3],
        "owed": ledger[-3:],
        "steps": steps,
        "events": [{"id": i, "status": "done"} for i, *_ in entries],
        "documents": [
            {"_id": "page:e1", "found": True, "version": 5, "digest": "d5"},
            {"_id": "page:e2", "found": False, "version": None, "digest": ""},
            {"_id": "joined:p1", "found": True, "version": 900, "digest": "j1"},
            {"_id": "joined:p2", "found": False, "version": None, "digest": ""},
        ],
        "view": [
            {"_id": "joined:p1", "routing": "", "digest": "j1"},
            {"_id": "book:b1", "routing": "", "digest": "b1"},
            {"_id": "order:o1", "routing": "t1", "digest": "o1"},
        ],
        "standing": [
            {"_id": "page:e1", "routing": "", "digest": "d5"},
            {"_id": "joined:p1", "routing": "", "digest": "j1"},
            {"_id": "order:o1", "routing": "t1", "digest": "o1"},
            {"_id": "book:b1", "routing": "", "digest": "b1"},
        ],
        "seen": [{"at": 11.0, "before": 9.0, "life": 0, "index": "i", "changed": {"page:e1": 5, "page:e2": 0}}],
        "timeline": [{"at": 90.0, "calm": True, "stuck": 0, "connections": 9, "workers": {"w1.1": [80, 20]}}],
        "acts": [{"kind": kind, "bit": True, "told": "bit", "began": 5.0} for kind in (*FAULTS, *PEOPLE)],
        "audit": [],
        "leases": [],
        "logs": [{"event": "worker.started"}],
    }
    return about, files


def written(folder: Path, about: dict[str, Any], files: Files) -> Evidence:
    (folder / "logs").mkdir(parents=True)
    for name in ("w1.1", "w2.1"):
        lines = files["logs"] if name == "w1.1" else []
        (folder / "logs" / f"{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "about.json").write_text(json.dumps(about))
    for name, rows in files.items():
        if name != "logs":
            (folder / f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Evidence(folder)


def judged(folder: Path, about: dict[str, Any], files: Files) -> Any:
    return judge(written(folder, about, files))


def test_a_good_history_passes(tmp_path: Path) -> None:
    verdict = judged(tmp_path, *history())
    assert (verdict.word, verdict.why) == ("PASS", "every invariant held and every fault bit")
    assert verdict.code == 0


# Of each: the invariant, a name, and what is done to the good history.
def _break(invariant: str, name: str, do: Callable[[dict[str, Any], Files], Any]) -> tuple[str, Break]:
    do.__name__ = name
    return invariant, do


def _standing(id: str, routing: str, digest: str) -> Row:
    return {"_id": id, "routing": routing, "digest": digest}


def _lose(about: dict[str, Any], files: Files) -> None:
    files["events"].pop(0)
    files["steps"] = [one for one in files["steps"] if one["event_id"] != GOOD]


def _keep_a_book_that_is_gone(about: dict[str, Any], files: Files) -> None:
    files["view"][1] = _standing("book:b2", "", "b2")
    files["standing"].append(_standing("book:b2", "", "b2"))


def _show_a_ghost(about: dict[str, Any], files: Files) -> None:
    files["seen"][0]["changed"]["page:e2"] = 3
    files["seen"].append({"at": 13.0, "before": 12.5, "life": 0, "index": "i", "changed": {"page:e2": 0}})


BREAKS: list[tuple[str, Break]] = [
    _break("I1 ", "lose", _lose),
    _break("I1 ", "never_expand_a_fanout", lambda _, f: f["events"][6].update(status="pending")),
    _break("I1 ", "never_finish_what_a_daemon_wrote", lambda _, f: f["events"][-1].update(status="pending")),
    _break("I2 ", "make_up", lambda _, f: f["documents"].append({"_id": "page:e9", "phantom": True})),
    _break("I2 ", "make_up_an_event", lambda _, f: f["events"].append({"id": f"{GOOD[:-1]}9", "status": "done"})),
    _break("I3 ", "be_stale", lambda _, f: f["documents"][0].update(version=4)),
    _break("I3 ", "find_drift", lambda a, _: a["final_verify"].update(code=1)),
    _break("I4 ", "bring_back", lambda _, f: f["documents"][1].update(found=True, version=3)),
    _break("I4 ", "show_a_ghost", _show_a_ghost),
    _break("I5 ", "fall", lambda _, f: f["seen"].append({**f["seen"][0], "at": 12.0, "changed": {"page:e1": 4}})),
    _break("I6 ", "lease_twice", lambda _, f: f["steps"].insert(1, step(GOOD, *HELD, new_token="t2"))),
    _break("I6 ", "keep_the_token", lambda _, f: f["steps"][0].update(old_token="t1")),
    _break("I7 ", "settle_as_another", lambda _, f: f["steps"][1].update(who="w2.1")),
    _break("I7 ", "reclaim_early", lambda _, f: f["steps"].insert(1, step(GOOD, *BACK, app="outbox-chores"))),
    # By a command of a person.
    _break("I7 ", "people_reclaim_early", lambda _, f: f["steps"].insert(1, step(GOOD, *BACK, who="people"))),
    _break("I8 ", "step_aside", lambda _, f: f["steps"].append(step(GOOD, "done", "pending"))),
    _break("I8 ", "prune_what_failed", lambda _, f: f["steps"].append(step(GOOD, "failed", None))),
    _break("I9 ", "try_for_ever", lambda _, f: f["steps"].append(step(GOOD, *BACK, attempts=50))),
    _break("I9 ", "be_abandoned_for_ever", lambda _, f: f["steps"].append(step(GOOD, *FAILED, abandoned=7))),
    _break("I10 ", "fail_by_outage", lambda _, f: f["steps"].append(step(GOOD, *FAILED, dead_reason=USED_UP))),
    _break("I10 ", "refuse_a_good_one", lambda _, f: f["steps"].append(step(GOOD, *FAILED, dead_reason=FINAL))),
    # No refresh's document is one that the mapping refuses.
    _break("I10 ", "fail_a_refresh", lambda _, f: f["steps"].append(step(KEPT, *FAILED, dead_reason=FINAL))),
    _break("I11 ", "be_stuck", lambda _, f: f["timeline"][0].update(stuck=1)),
    _break("I11 ", "leave_a_lease", lambda _, f: f["leases"].append({"token": "t1", "owner": "w1"})),
    _break("I11 ", "never_drain", lambda a, _: a["problems"].append("not drained within 600 s")),
    _break("I12 ", "break_the_chain", lambda a, _: a["audit_verify"].update(code=1)),
    _break("I12 ", "write_a_replay_that_was_none", lambda _, f: f["audit"].append(REPLAYED)),
    _break("I12 ", "replay_unseen", lambda _, f: f["steps"].append(step(GOOD, "failed", "pending", replays=1))),
    _break("I13 ", "count_wrongly", lambda a, _: a.update(coda_counted=6.0)),
    _break("I14 ", "log_a_document", lambda _, f: f["logs"].append({"event": "x", "text": f"title {CANARY}"})),
    _break("I14 ", "answer_a_document", lambda a, _: a.update(canary_seen=1)),
    _break("I14 ", "tell_the_password", lambda a, _: a.update(password_seen=1)),
    _break("I15 ", "grow", lambda _, f: f["timeline"][0]["workers"].update({"w1.1": [4_000, 20]})),
    _break("I15 ", "leak_files", lambda _, f: f["timeline"][0]["workers"].update({"w1.1": [80, 2_000]})),
    _break("I15 ", "take_all_connections", lambda _, f: f["timeline"][0].update(connections=500)),
    _break("I15 ", "idle_in_a_transaction", lambda _, f: f["timeline"][0].update(idle_in_transaction=30.0)),
    # Both are of the batch t1; neither is one that the mapping refuses.
    _break("I16 ", "fail_with_a_neighbour", lambda _, f: f["steps"][1].update(new_status="failed", dead_reason=FINAL)),
    _break("I17 ", "touch_the_neighbour", lambda a, _: a.update(neighbour_after="other")),
    _break("I17 ", "write_elsewhere", lambda a, _: a["wire_targets"].update(other=1)),
    _break("I17 ", "write_a_stranger", lambda a, _: a["wire_strangers"].append("page:e9")),
    _break("I18 ", "lose_a_joined_document", lambda _, f: f["standing"].pop(1)),
    _break("I18 ", "lack_a_comment", lambda _, f: f["standing"][1].update(digest="j0")),
    _break("I18 ", "bring_one_back", lambda _, f: f["standing"].append(_standing("joined:p2", "", "j2"))),
    _break("I18 ", "lose_what_no_event_names", lambda _, f: f["view"].append({"_id": "joined:p3", "digest": "j3"})),
    # What the race of a rename and a move left before fan-outs.
    _break("I18 ", "keep_an_old_house", lambda _, f: f["standing"][3].update(digest="b0")),
    _break("I18 ", "keep_a_book_that_is_gone", _keep_a_book_that_is_gone),
    _break("I18 ", "bring_an_order_back", lambda _, f: f["standing"].append(_standing("order:o2", "t2", "o2"))),
    _break("I19 ", "stand_under_two_routings", lambda _, f: f["standing"].append(_standing("order:o1", "t2", "o1"))),
    _break("I19 ", "leave_the_old_place_only", lambda _, f: f["standing"][2].update(routing="t2")),
    _break("I19 ", "stand_without_a_routing_too", lambda _, f: f["standing"].append(_standing("order:o1", "", "o1"))),
    _break("I19 ", "route_a_payload", lambda _, f: f["standing"].append(_standing("page:e1", "t1", "d5"))),
    _break("I19 ", "leave_an_orphan", lambda _, f: f["standing"].append(_standing("order:o9", "t1", "o9"))),
    _break("Clean exits", "exit_with_an_error", lambda a, _: a["exit_codes"].update({"w1.1": 1})),
    # In the storm PostgreSQL may be down, and 3 says so; at the end nothing is.
    _break("Clean exits", "drain_badly_at_the_end", lambda a, _: a["exit_codes"].update({"w1.1": 3})),
    _break("No command crashes", "crash", lambda a, _: a["crashed_commands"].append({"command": ["x"], "code": 70})),
]


def test_each_of_these_is_found_and_every_check_is_broken_by_one(tmp_path: Path) -> None:
    names = {finding.name for finding in judged(tmp_path / "good", *history()).findings}
    assert len(names) == len(CHECKS)
    broken: set[str] = set()
    for invariant, do in BREAKS:
        about, files = history()
        do(about, files)
        verdict = judged(tmp_path / do.__name__, about, files)
        found = {finding.name for finding in verdict.findings if not finding.ok}
        assert verdict.code == 1, do.__name__
        assert any(name.startswith(invariant) for name in found), (do.__name__, verdict.why)
        broken |= found
    assert names - broken == set()


def test_a_fault_that_never_bit_makes_it_inconclusive(tmp_path: Path) -> None:
    about, files = history()
    files["acts"][0]["bit"] = False
    verdict = judged(tmp_path, about, files)
    assert (verdict.word, verdict.code) == ("INCONCLUSIVE", 3)


@pytest.mark.parametrize("name", ["ledger", "steps", "documents", "view", "seen", "logs"])
def test_a_history_that_lacks_what_every_run_has_is_inconclusive(name: str, tmp_path: Path) -> None:
    about, files = history()
    files[name] = []
    verdict = judged(tmp_path, about, files)
    assert (verdict.word, verdict.code) == ("INCONCLUSIVE", 3)
    assert f"no {'joined documents' if name == 'view' else name} to check" in verdict.why


@pytest.mark.parametrize(("place", "part"), [(1, "linked"), (2, "routed")])
def test_a_history_without_documents_of_a_part_is_inconclusive(place: int, part: str, tmp_path: Path) -> None:
    about, files = history()
    files["view"].pop(place)
    verdict = judged(tmp_path, about, files)
    assert (verdict.word, verdict.code) == ("INCONCLUSIVE", 3)
    assert f"no {part} documents to check" in verdict.why


@pytest.mark.parametrize("part", ["joined", "routed", "linked"])
def test_documents_whose_commits_were_never_swapped_show_nothing(part: str, tmp_path: Path) -> None:
    about, files = history()
    about[f"{part}_swapped"] = 0
    verdict = judged(tmp_path, about, files)
    assert (verdict.word, verdict.code) == ("INCONCLUSIVE", 3)
    assert f"on a {part} document" in verdict.why
