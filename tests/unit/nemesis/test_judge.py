"""The judge of the nemesis finds what it is there to find: each invariant is broken once, by hand, in a history."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labs.experiment import CheckResult
from labs.producing import CANARY
from tests.nemesis import command, report
from tests.nemesis.archive import pack
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
Files = dict[str, list[dict[str, Any]]]


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


def lose(about: dict[str, Any], files: Files) -> None:
    files["events"].pop(0)
    files["steps"] = [one for one in files["steps"] if one["event_id"] != GOOD]


def make_up(about: dict[str, Any], files: Files) -> None:
    files["documents"].append({"_id": "page:e9", "phantom": True})


def make_up_an_event(about: dict[str, Any], files: Files) -> None:
    files["events"].append({"id": "019a0000-0000-7000-8000-000000000009", "status": "done"})


def find_drift(about: dict[str, Any], files: Files) -> None:
    about["final_verify"]["code"] = 1


def be_stale(about: dict[str, Any], files: Files) -> None:
    files["documents"][0]["version"] = 4


def bring_back(about: dict[str, Any], files: Files) -> None:
    files["documents"][1] |= {"found": True, "version": 3}


def lose_a_joined_document(about: dict[str, Any], files: Files) -> None:
    files["standing"].pop(1)


def lack_a_comment(about: dict[str, Any], files: Files) -> None:
    files["standing"][1]["digest"] = "j0"


def bring_a_joined_document_back(about: dict[str, Any], files: Files) -> None:
    files["standing"].append({"_id": "joined:p2", "routing": "", "digest": "j2"})


def lose_what_no_event_names(about: dict[str, Any], files: Files) -> None:
    files["view"].append({"_id": "joined:p3", "digest": "j3"})


def keep_an_old_house(about: dict[str, Any], files: Files) -> None:
    """What the race of a rename and a move left before fan-outs."""
    files["standing"][3]["digest"] = "b0"


def keep_a_book_that_is_gone(about: dict[str, Any], files: Files) -> None:
    files["view"][1] = {"_id": "book:b2", "routing": "", "digest": "b2"}
    files["standing"].append({"_id": "book:b2", "routing": "", "digest": "b2"})


def never_expand_a_fanout(about: dict[str, Any], files: Files) -> None:
    next(row for row in files["events"] if row["id"] == RENAMED)["status"] = "pending"


def lose_a_routed_document(about: dict[str, Any], files: Files) -> None:
    files["standing"].pop(2)


def keep_an_old_customer(about: dict[str, Any], files: Files) -> None:
    files["standing"][2]["digest"] = "o0"


def bring_a_banned_customers_order_back(about: dict[str, Any], files: Files) -> None:
    files["standing"].append({"_id": "order:o2", "routing": "t2", "digest": "o2"})


def stand_under_two_routings(about: dict[str, Any], files: Files) -> None:
    files["standing"].append({"_id": "order:o1", "routing": "t2", "digest": "o1"})


def leave_the_old_place_only(about: dict[str, Any], files: Files) -> None:
    files["standing"][2]["routing"] = "t2"


def stand_without_a_routing_too(about: dict[str, Any], files: Files) -> None:
    files["standing"].append({"_id": "order:o1", "routing": "", "digest": "o1"})


def route_a_payload(about: dict[str, Any], files: Files) -> None:
    files["standing"].append({"_id": "page:e1", "routing": "t1", "digest": "d5"})


def leave_an_orphan(about: dict[str, Any], files: Files) -> None:
    files["standing"].append({"_id": "order:o9", "routing": "t1", "digest": "o9"})


def never_finish_what_a_daemon_wrote(about: dict[str, Any], files: Files) -> None:
    files["events"][-1]["status"] = "pending"


def fail_a_refresh(about: dict[str, Any], files: Files) -> None:
    """No document of theirs is one that the mapping refuses."""
    files["steps"].append(step(KEPT, "processing", "failed", dead_reason="non_retryable"))


def show_a_ghost(about: dict[str, Any], files: Files) -> None:
    files["seen"][0]["changed"]["page:e2"] = 3
    files["seen"].append({"at": 13.0, "before": 12.5, "life": 0, "index": "i", "changed": {"page:e2": 0}})


def fall(about: dict[str, Any], files: Files) -> None:
    files["seen"].append({"at": 12.0, "before": 9.0, "life": 0, "index": "i", "changed": {"page:e1": 4}})


def lease_twice(about: dict[str, Any], files: Files) -> None:
    files["steps"].insert(1, step(GOOD, "processing", "processing", new_token="t2"))


def keep_the_token(about: dict[str, Any], files: Files) -> None:
    files["steps"][0]["old_token"] = "t1"


def settle_as_another(about: dict[str, Any], files: Files) -> None:
    files["steps"][1]["who"] = "w2.1"


def people_reclaim_early(about: dict[str, Any], files: Files) -> None:
    early = step(GOOD, "processing", "pending", app="outbox verify", lease_left=1.4)
    files["steps"].insert(1, early | {"who": "people"})


def reclaim_early(about: dict[str, Any], files: Files) -> None:
    files["steps"].insert(1, step(GOOD, "processing", "pending", app="outbox-chores", lease_left=1.4))


def step_aside(about: dict[str, Any], files: Files) -> None:
    files["steps"].append(step(GOOD, "done", "pending"))


def prune_what_failed(about: dict[str, Any], files: Files) -> None:
    files["steps"].append(step(GOOD, "failed", None))


def try_for_ever(about: dict[str, Any], files: Files) -> None:
    files["steps"].append(step(GOOD, "processing", "pending", attempts=50))


def be_abandoned_for_ever(about: dict[str, Any], files: Files) -> None:
    files["steps"].append(step(GOOD, "processing", "failed", abandoned=7))


def refuse_a_good_one(about: dict[str, Any], files: Files) -> None:
    files["steps"].append(step(GOOD, "processing", "failed", dead_reason="non_retryable"))


def fail_by_outage(about: dict[str, Any], files: Files) -> None:
    files["steps"].append(step(GOOD, "processing", "failed", dead_reason="max_attempts_exceeded"))


def be_stuck(about: dict[str, Any], files: Files) -> None:
    files["timeline"][0]["stuck"] = 1


def leave_a_lease(about: dict[str, Any], files: Files) -> None:
    files["leases"].append({"token": "t1", "owner": "w1"})


def never_drain(about: dict[str, Any], files: Files) -> None:
    about["problems"].append("not drained within 600 s")


def break_the_chain(about: dict[str, Any], files: Files) -> None:
    about["audit_verify"]["code"] = 1


def write_a_replay_that_was_none(about: dict[str, Any], files: Files) -> None:
    files["audit"].append({"action": "REPLAY_BATCH_ITEM", "event_id": GOOD})


def replay_unseen(about: dict[str, Any], files: Files) -> None:
    files["steps"].append(step(GOOD, "failed", "pending", attempts=0, replays=1))


def count_wrongly(about: dict[str, Any], files: Files) -> None:
    about["coda_counted"] = 6.0


def count_nothing(about: dict[str, Any], files: Files) -> None:
    about["coda_counted"], about["coda_steps"] = 0.0, 0


def log_a_document(about: dict[str, Any], files: Files) -> None:
    files["logs"].append({"event": "x", "text": f"title {CANARY}"})


def answer_a_document(about: dict[str, Any], files: Files) -> None:
    about["canary_seen"] = 1


def tell_the_password(about: dict[str, Any], files: Files) -> None:
    about["password_seen"] = 1


def grow(about: dict[str, Any], files: Files) -> None:
    files["timeline"][0]["workers"]["w1.1"] = [4_000, 20]


def leak_files(about: dict[str, Any], files: Files) -> None:
    files["timeline"][0]["workers"]["w1.1"] = [80, 2_000]


def take_all_connections(about: dict[str, Any], files: Files) -> None:
    files["timeline"][0]["connections"] = 500


def idle_in_a_transaction(about: dict[str, Any], files: Files) -> None:
    files["timeline"][0]["idle_in_transaction"] = 30.0


def fail_with_a_neighbour(about: dict[str, Any], files: Files) -> None:
    """Both are of the batch t1; neither is one that the mapping refuses."""
    files["steps"][1] |= {"new_status": "failed", "dead_reason": "non_retryable"}


def write_elsewhere(about: dict[str, Any], files: Files) -> None:
    about["wire_targets"]["other"] = 1


def write_a_stranger(about: dict[str, Any], files: Files) -> None:
    about["wire_strangers"].append("page:e9")


def leave_with_an_error(about: dict[str, Any], files: Files) -> None:
    about["exit_codes"]["w1.1"] = 1


def drain_badly_at_the_end(about: dict[str, Any], files: Files) -> None:
    """In the storm PostgreSQL may be down, and 3 says so; at the end nothing is."""
    about["exit_codes"]["w1.1"] = 3


def fall_over(about: dict[str, Any], files: Files) -> None:
    about["crashed_commands"].append({"command": ["verify"], "code": 70})


def touch_the_neighbour(about: dict[str, Any], files: Files) -> None:
    about["neighbour_after"] = "other"


BREAKS: list[tuple[str, Callable[[dict[str, Any], Files], None]]] = [
    ("I1 ", lose),
    ("I2 ", make_up),
    ("I2 ", make_up_an_event),
    ("I3 ", be_stale),
    ("I3 ", find_drift),
    ("I4 ", bring_back),
    ("I4 ", show_a_ghost),
    ("I5 ", fall),
    ("I6 ", lease_twice),
    ("I6 ", keep_the_token),
    ("I7 ", settle_as_another),
    ("I7 ", reclaim_early),
    ("I7 ", people_reclaim_early),
    ("I8 ", step_aside),
    ("I8 ", prune_what_failed),
    ("I9 ", try_for_ever),
    ("I9 ", be_abandoned_for_ever),
    ("I10 ", fail_by_outage),
    ("I10 ", refuse_a_good_one),
    ("I10 ", fail_a_refresh),
    ("I11 ", be_stuck),
    ("I11 ", leave_a_lease),
    ("I11 ", never_drain),
    ("I12 ", replay_unseen),
    ("I12 ", write_a_replay_that_was_none),
    ("I12 ", break_the_chain),
    ("I13 ", count_wrongly),
    ("I13 ", count_nothing),
    ("I14 ", tell_the_password),
    ("I14 ", log_a_document),
    ("I14 ", answer_a_document),
    ("I15 ", grow),
    ("I15 ", leak_files),
    ("I15 ", take_all_connections),
    ("I15 ", idle_in_a_transaction),
    ("I16 ", fail_with_a_neighbour),
    ("I17 ", touch_the_neighbour),
    ("I17 ", write_elsewhere),
    ("I17 ", write_a_stranger),
    ("I18 ", lose_a_joined_document),
    ("I18 ", lack_a_comment),
    ("I18 ", bring_a_joined_document_back),
    ("I18 ", lose_what_no_event_names),
    ("I18 ", keep_an_old_house),
    ("I18 ", keep_a_book_that_is_gone),
    ("I1 ", never_expand_a_fanout),
    ("I18 ", lose_a_routed_document),
    ("I18 ", keep_an_old_customer),
    ("I18 ", bring_a_banned_customers_order_back),
    ("I19 ", stand_under_two_routings),
    ("I19 ", leave_the_old_place_only),
    ("I19 ", stand_without_a_routing_too),
    ("I19 ", route_a_payload),
    ("I19 ", leave_an_orphan),
    ("I1 ", never_finish_what_a_daemon_wrote),
    ("Clean exits", leave_with_an_error),
    ("Clean exits", drain_badly_at_the_end),
    ("No command crashes", fall_over),
]


def after(do: Callable[[dict[str, Any], Files], None], folder: Path) -> list[CheckResult]:
    about, files = history()
    do(about, files)
    return list(judge(written(folder / do.__name__, about, files)).findings)


def test_every_check_of_the_judge_is_broken_by_one_of_these(tmp_path: Path) -> None:
    found = written(tmp_path, *history())
    findings = judge(found).findings
    assert len({finding.name for finding in findings}) == len(CHECKS)
    broken = {finding.name for _, do in BREAKS for finding in after(do, tmp_path) if not finding.ok}
    assert {finding.name for finding in findings} - broken == set()


@pytest.mark.parametrize(("invariant", "do"), BREAKS, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_invariant_is_found(
    invariant: str, do: Callable[[dict[str, Any], Files], None], tmp_path: Path
) -> None:
    about, files = history()
    do(about, files)
    verdict = judged(tmp_path, about, files)
    assert verdict.code == 1
    assert any(finding.name.startswith(invariant) for finding in verdict.findings if not finding.ok), verdict.why


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


def test_the_overlapping_pairs_of_rename_and_move_are_counted(tmp_path: Path) -> None:
    (finding,) = [one for one in judged(tmp_path, *history()).findings if one.name.startswith("I18")]
    assert "in the other order: 1 joined, 1 routed, 1 linked" in finding.observed


@pytest.mark.parametrize("part", ["joined", "routed", "linked"])
def test_documents_whose_commits_were_never_swapped_show_nothing(part: str, tmp_path: Path) -> None:
    about, files = history()
    about[f"{part}_swapped"] = 0
    verdict = judged(tmp_path, about, files)
    assert (verdict.word, verdict.code) == ("INCONCLUSIVE", 3)
    assert f"on a {part} document" in verdict.why


def test_joined_documents_are_counted_with_all_others_and_on_their_own(tmp_path: Path) -> None:
    about, files = history()
    lack_a_comment(about, files)
    bring_a_joined_document_back(about, files)
    lose_what_no_event_names(about, files)
    counts = judged(tmp_path, about, files).counts
    assert (counts["lost"], counts["stale"], counts["resurrected"]) == (1, 1, 1)
    assert (counts["refreshes"], counts["joined"]) == (6, 6)
    assert set(counts) == set(report.MEANING) - {"takeovers"}  # those are of a consumer group


def test_documents_in_two_places_or_in_the_wrong_one_are_counted(tmp_path: Path) -> None:
    about, files = history()
    stand_under_two_routings(about, files)
    route_a_payload(about, files)
    bring_a_banned_customers_order_back(about, files)
    counts = judged(tmp_path, about, files).counts
    assert (counts["misplaced"], counts["resurrected"], counts["lost"], counts["stale"]) == (2, 1, 0, 0)


def test_a_history_of_nothing_is_inconclusive(tmp_path: Path) -> None:
    about, files = history()
    verdict = judged(tmp_path, about, {name: [] for name in files})
    assert (verdict.word, verdict.code) == ("INCONCLUSIVE", 3)


def packed_and_judged(folder: Path, about: dict[str, Any], files: Files) -> tuple[Any, Any, bytes]:
    """The verdict over the folder of a run, that over its archive, and all that the archive holds."""
    found = written(folder / "run", about, files)
    pack(found, folder / "history.tar.xz")
    with tarfile.open(folder / "history.tar.xz") as tar:
        tar.extractall(folder / "unpacked", filter="data")
    texts = [path.read_bytes() for path in (folder / "unpacked").rglob("*") if path.is_file()]
    return judge(found), judge(Evidence(folder / "unpacked")), b"".join(texts)


def test_an_unpacked_archive_is_judged_as_the_run_was(tmp_path: Path) -> None:
    about, files = history()
    about["crashed_commands"], about["where"] = [], str((tmp_path / "run" / "clock-w1").resolve())
    first, again, texts = packed_and_judged(tmp_path, about, files)
    assert first.word == "PASS"
    assert again.as_json() == first.as_json()
    assert str(tmp_path).encode() not in texts


@pytest.mark.parametrize(("invariant", "do"), BREAKS, ids=lambda value: getattr(value, "__name__", value))
def test_what_is_broken_is_broken_in_the_archive_too(
    invariant: str, do: Callable[[dict[str, Any], Files], None], tmp_path: Path
) -> None:
    about, files = history()
    do(about, files)
    first, again, _ = packed_and_judged(tmp_path, about, files)
    assert again.as_json() == first.as_json()
    assert invariant in again.why


def test_what_bit_after_the_storm_is_distinguished(tmp_path: Path) -> None:
    about, files = history()
    files["acts"][0]["began"] = 41.0
    verdict = judged(tmp_path, about, files)
    assert [(one.in_storm, one.after_it) for one in verdict.bitten[:2]] == [(0, 1), (1, 0)]
    assert "| bit in the storm | after it |" in report.text(verdict, about | ABOUT)


def test_a_heal_with_nothing_to_drain_is_inconclusive(tmp_path: Path) -> None:
    about, files = history()
    about["backlog"] = 0
    assert judged(tmp_path, about, files).word == "INCONCLUSIVE"


def test_a_run_on_opensearch_has_a_record_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about, files = history()
    about |= {name: value for name, value in ABOUT.items() if name != "elasticsearch"}
    written(tmp_path / "run", about | {"opensearch": "2.19.6", "minutes": 2, "rate": 50}, files)
    page = tmp_path / "page.md"
    page.write_text(command.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    before = page.read_text(encoding="utf-8").split("<!-- /nemesis -->")[0]
    monkeypatch.setattr(command, "ARCHIVES", tmp_path)
    assert command.main(["--judge", str(tmp_path / "run"), "--record", str(page), "--archive"]) == 0
    told = page.read_text(encoding="utf-8")
    assert told.startswith(before)  # Elasticsearch's record stays
    assert "OpenSearch 2.19.6" in told.split("<!-- nemesis-opensearch:")[1].split("<!-- /nemesis-opensearch -->")[0]
    assert (tmp_path / "nemesis-opensearch.tar.xz").exists()


def test_a_composed_run_is_one_row_of_a_table_and_replaces_that_of_its_seed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- nemesis-wide: written by scripts/nemesis --record -->\n\n<!-- /nemesis-wide -->\nrest\n")
    for seed, ingredients in ((12, ["carts"]), (7, ["joined"]), (12, ["goods", "kill_9"])):
        about, files = history()
        about |= ABOUT | {"minutes": 2, "recipe": f"wide seed {seed}", "seed": seed, "ingredients": ingredients}
        written(tmp_path / f"{seed}-{ingredients[0]}", about, files)
        assert command.main(["--judge", str(tmp_path / f"{seed}-{ingredients[0]}"), "--record", str(page)]) == 0
    told = page.read_text().splitlines()
    assert [line.split(" | ")[0] for line in told if line[:2] == "| "] == ["| seed", "| 7", "| 12"]
    assert (told[-3].split(" | ")[-1], told[-1]) == ("goods, kill_9 |", "rest")


def test_an_unknown_product_is_refused_before_a_server_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--product", "solr"])
    assert "available are elasticsearch-8" in capsys.readouterr().err
