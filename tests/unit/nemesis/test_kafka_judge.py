"""The judge of a nemesis with Kafka finds what it is there to find: a good history is broken in one way each time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nemesis import command, report
from tests.nemesis.kafka_faults import owners
from tests.nemesis.kafka_judge import CHECKS, KafkaEvidence, judge
from tests.nemesis.schedule import KAFKA_KINDS
from tests.nemesis.verdict import NemesisVerdict

GOOD, DELETED = "019a0000-0000-7000-8000-000000000001", "019a0000-0000-7000-8000-000000000002"
KEPT, UNANSWERED = "019a0000-0000-7000-8000-000000000003", "019a0000-0000-7000-8000-000000000004"
Files = dict[str, list[dict[str, Any]]]
Damage = Callable[[dict[str, Any], Files], None]


def act(kind: str, began: float = 5.0, **numbers: float) -> dict[str, Any]:
    return {"kind": kind, "bit": True, "told": "bit", "began": began, "ended": began + 5, "numbers": numbers}


def history() -> tuple[dict[str, Any], Files]:
    """An upsert, a delete, a refresh, and a commit without an answer that the log does not have."""
    about = {
        "source": "kafka",
        "seed": 1,
        "rate": 50,
        "commit": "c",
        "postgresql": "1",
        "elasticsearch": "1",
        "kafka": "1",
        "python": "3",
        "clock": "libfaketime",
        "minutes": 1,
        "refused_attempts": 0,
        "joined_swapped": 1,
        "looks": 1,
        "answers": 3,
        "wire_targets": {"nemesis": 2},
        "wire_again": 0,
        "wire_sent": 2,
        "wire_strangers": [],
        "exit_codes": {"w1.1": 0},
        "crashed_commands": [],
        "problems": [],
        "failed_rows": [],
        "healed": 50.0,
        "storm_ended": 900.0,
        "backlog": 7,
        "drain_seconds": 1.0,
        "ill_workers": [],
        "takeover_seconds": 11.0,
        "final_verify": {"code": 0},
        "audit_verify": {"code": 0},
        "password_seen": 0,
        "canary_seen": 0,
        "neighbour_before": "same",
        "neighbour_after": "same",
    }
    entries = [(GOOD, "page", "e1", "upsert", 5, "d5", True), (DELETED, "page", "e2", "delete", 6, "", True)]
    entries += [(KEPT, "joined", "p1", "refresh", 0, "", True), (UNANSWERED, "page", "e1", "upsert", 9, "d9", False)]
    keys = ("id", "entity_type", "entity_id", "op", "version", "digest", "committed")
    stored = {"id": DELETED, "document": "page:e2", "op": "delete", "event_version": 6, "status": "done"}
    files: Files = {
        "ledger": [dict(zip(keys, entry, strict=True)) | {"at": 1.0} for entry in entries],
        "stored": [stored | {"dead_reason": None, "done_at": 8.0}],
        "strays": [],
        "events": [],
        "documents": [
            {"_id": "page:e1", "found": True, "version": 5, "digest": "d5"},
            {"_id": "page:e2", "found": False, "version": None, "digest": ""},
            {"_id": "joined:p1", "found": True, "version": 900, "digest": "j1"},
        ],
        "view": [{"_id": "joined:p1", "digest": "j1"}],
        "seen": [{"at": 11.0, "before": 9.0, "life": 0, "index": "i", "changed": {"page:e1": 5, "page:e2": 0}}],
        "timeline": [{"at": 90.0, "calm": True, "stuck": 0, "connections": 9, "workers": {"w1.1": [80, 20]}}],
        "acts": [act(kind) for kind in KAFKA_KINDS] + [act("kill_9", 300.0, takeover=6.5)],
        "audit": [],
        "leases": [],
        "logs": [{"event": "worker.started"}],
    }
    return about, files


def judged(folder: Path, about: dict[str, Any], files: Files) -> NemesisVerdict:
    (folder / "logs").mkdir(parents=True)
    (folder / "about.json").write_text(json.dumps(about))
    for name, rows in files.items():
        place = folder / "logs" / "w1.1.ndjson" if name == "logs" else folder / f"{name}.ndjson"
        place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return judge(KafkaEvidence(folder))


def test_a_good_history_passes_and_its_counts_are_explained(tmp_path: Path) -> None:
    verdict = judged(tmp_path, *history())
    assert (verdict.word, verdict.why) == ("PASS", "every invariant held and every fault bit")
    assert set(verdict.counts) == set(report.MEANING) - {"double_leases"}
    assert verdict.counts["takeovers"] == 1
    assert command.main(["--judge", str(tmp_path)]) == 0


def lose_a_document(_: dict[str, Any], files: Files) -> None:
    files["documents"][0] |= {"found": False, "version": None, "digest": ""}


def leave_a_row(_: dict[str, Any], files: Files) -> None:
    files["stored"][0]["status"] = "pending"


def find_the_unanswered(_: dict[str, Any], files: Files) -> None:
    """It was committed, so its document must be there."""
    files["strays"].append({"id": UNANSWERED})


def make_up(_: dict[str, Any], files: Files) -> None:
    files["strays"].append({"id": "019a0000-0000-7000-8000-000000000009"})


def bring_back(_: dict[str, Any], files: Files) -> None:
    files["documents"][1] |= {"found": True, "version": 3}


def show_a_ghost(_: dict[str, Any], files: Files) -> None:
    files["seen"][0]["changed"]["page:e2"] = 3
    files["seen"].append({"at": 13.0, "before": 12.5, "life": 0, "index": "i", "changed": {"page:e2": 0}})


def fall(_: dict[str, Any], files: Files) -> None:
    files["seen"].append({"at": 12.0, "before": 9.0, "life": 0, "index": "i", "changed": {"page:e1": 4}})


def take_long(_: dict[str, Any], files: Files) -> None:
    files["acts"].append(act("sigstop", 400.0, takeover=11.5))


def never_take(_: dict[str, Any], files: Files) -> None:
    files["acts"].append(act("kill_9", 400.0, takeover=-1.0))


def fail_by_an_outage(about: dict[str, Any], _: Files) -> None:
    about["failed_rows"] = [[GOOD, "attempts"]]


def miss_records(_: dict[str, Any], files: Files) -> None:
    files["logs"].append({"event": "stream.gap", "ts": "2026"})


def hang(about: dict[str, Any], _: Files) -> None:
    about["ill_workers"] = ["w1.1"]


def never_drain(about: dict[str, Any], _: Files) -> None:
    about["problems"] = ["not drained within 600 s"]


BROKEN: dict[Damage, str] = {
    lose_a_document: "I1 Nothing is lost",
    leave_a_row: "I1 Nothing is lost",
    miss_records: "I1 No gap",
    make_up: "I2 Nothing is made up",
    find_the_unanswered: "I3 Convergence",
    bring_back: "I4 Nothing deleted comes back",
    show_a_ghost: "I4 Deleted documents stay deleted",
    fall: "I5 Versions never decrease",
    take_long: "I7 Taken over in time",
    never_take: "I7 Taken over in time",
    fail_by_an_outage: "I10 Outages fail nothing",
    never_drain: "I11 It drains",
    hang: "I11 Every worker is well",
}


@pytest.mark.parametrize("damage", BROKEN, ids=lambda damage: damage.__name__)
def test_what_is_broken_is_named(damage: Damage, tmp_path: Path) -> None:
    about, files = history()
    damage(about, files)
    verdict = judged(tmp_path, about, files)
    assert verdict.word == "FAIL"
    assert BROKEN[damage] in [finding.name for finding in verdict.findings if not finding.ok]
    assert len(verdict.findings) == len(CHECKS)


def test_a_takeover_beside_a_brokers_absence_is_shown_and_not_judged(tmp_path: Path) -> None:
    about, files = history()
    files["acts"] += [act("broker_kill", 600.0), act("kill_9", 610.0, takeover=19.0)]
    verdict = judged(tmp_path, about, files)
    assert verdict.word == "PASS"
    (told,) = [finding.observed for finding in verdict.findings if finding.name == "I7 Taken over in time"]
    assert "beside a broker's absence 1, at most 19.0 s" in told


def test_a_takeover_counts_from_its_signal_however_long_the_nemesis_waited_before_it(
    tmp_path: Path,
) -> None:
    about, files = history()
    asleep = act("broker_stop", 600.0) | {"numbers": {"from": 600.0, "until": 608.0}}
    files["acts"] += [asleep, act("kill_9", 601.0, takeover=12.0, at=620.0)]
    assert judged(tmp_path, about, files).why == "broken: I7 Taken over in time"


@pytest.mark.parametrize(("second", "word"), [(6.0, "PASS"), (0.5, "FAIL"), (13.0, "FAIL")])
def test_a_takeover_counts_from_the_last_worker_that_died_before_its_end(
    tmp_path: Path, second: float, word: str
) -> None:
    """It may have been the heir, whose session has to end too."""
    about, files = history()
    files["acts"] += [act("kill_9", 600.0, takeover=12.0), act("sigstop", 600.0 + second, takeover=6.0)]
    assert judged(tmp_path, about, files).word == word


def test_a_fault_that_did_not_bite_and_a_history_without_takeovers_are_inconclusive(tmp_path: Path) -> None:
    about, files = history()
    files["acts"] = [one for one in files["acts"] if one["kind"] != "broker_kill"]
    assert "broker_kill bit 0 times" in judged(tmp_path / "a", about, files).why
    about, files = history()
    files["acts"].pop()
    verdict = judged(tmp_path / "b", about, files)
    assert (verdict.word, verdict.code) == ("INCONCLUSIVE", 3)
    assert "no takeovers to check" in verdict.why


def test_whose_a_partition_is_follows_from_what_all_workers_said() -> None:
    said = [
        (5, "w2", "assigned", [4]),  # of w1, which died without a word
        (1, "w1", "assigned", [1, 2, 3, 4]),
        (2, "w1", "revoked", [2]),
        (3, "w1", "lost", [3]),
        (6, "w1", "lost", [4]),  # and says so late
    ]
    facts = [
        {"ts": f"2026-01-01T00:00:0{at}Z", "worker": w, "event": f"stream.{e}", "partitions": p} for at, w, e, p in said
    ]
    assert owners(facts) == {1: "w1", 4: "w2"}
