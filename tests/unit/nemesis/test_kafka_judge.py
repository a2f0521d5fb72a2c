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
from tests.unit.nemesis.test_judge import ABOUT, DELETED, GOOD, KEPT, Files
from tests.unit.nemesis.test_judge import history as table_history

UNANSWERED = "019a0000-0000-7000-8000-00000000000b"
Damage = Callable[[dict[str, Any], Files], Any]
SEEN = {"at": 12.0, "before": 9.0, "life": 0, "index": "i"}
FALLEN = SEEN | {"changed": {"page:e1": 4}}
GHOST = [SEEN | {"changed": {"page:e2": 3}}, SEEN | {"at": 13.0, "before": 12.5, "changed": {"page:e2": 0}}]


def act(kind: str, began: float = 5.0, **numbers: float) -> dict[str, Any]:
    return {"kind": kind, "bit": True, "told": "bit", "began": began, "ended": began + 5, "numbers": numbers}


def history() -> tuple[dict[str, Any], Files]:
    """An upsert, a delete, a refresh, and a commit without an answer that the log does not have."""
    about, files = table_history()
    about |= ABOUT | {"source": "kafka", "rate": 50, "kafka": "1", "minutes": 1, "storm_ended": 900.0}
    about |= {"failed_rows": [], "ill_workers": [], "takeover_seconds": 11.0}
    del about["routed_swapped"], about["linked_swapped"]
    entries = [(GOOD, "page", "e1", "upsert", 5, "d5", True), (DELETED, "page", "e2", "delete", 6, "", True)]
    entries += [(KEPT, "joined", "p1", "refresh", 0, "", True), (UNANSWERED, "page", "e1", "upsert", 9, "d9", False)]
    keys = ("id", "entity_type", "entity_id", "op", "version", "digest", "committed")
    stored = {"id": DELETED, "document": "page:e2", "op": "delete", "event_version": 6, "status": "done"}
    return about, {
        "ledger": [dict(zip(keys, entry, strict=True)) | {"at": 1.0} for entry in entries],
        "stored": [stored | {"dead_reason": None, "done_at": 8.0}],
        "strays": [],
        "events": [],
        "documents": files["documents"][:3],
        "view": files["view"][:1],
        "acts": [act(kind) for kind in KAFKA_KINDS] + [act("kill_9", 300.0, takeover=6.5)],
        **{name: files[name] for name in ("seen", "timeline", "audit", "leases", "logs")},
    }


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


BROKEN: dict[str, tuple[str, Damage]] = {
    "lost": ("I1 Nothing is lost", lambda _, f: f["documents"][0].update(found=False, version=None, digest="")),
    "left open": ("I1 Nothing is lost", lambda _, f: f["stored"][0].update(status="pending")),
    "a gap": ("I1 No gap", lambda _, f: f["logs"].append({"event": "stream.gap", "ts": "2026"})),
    "made up": ("I2 Nothing is made up", lambda _, f: f["strays"].append({"id": f"{GOOD[:-1]}9"})),
    # It was committed, so its document must be there.
    "stale": ("I3 Convergence", lambda _, f: f["strays"].append({"id": UNANSWERED})),
    "back": ("I4 Nothing deleted comes back", lambda _, f: f["documents"][1].update(found=True, version=3)),
    "seen again": ("I4 Deleted documents stay deleted", lambda _, f: f["seen"].extend(GHOST)),
    "falls": ("I5 Versions never decrease", lambda _, f: f["seen"].append(FALLEN)),
    "late": ("I7 Taken over in time", lambda _, f: f["acts"].append(act("sigstop", 400.0, takeover=11.5))),
    "never": ("I7 Taken over in time", lambda _, f: f["acts"].append(act("kill_9", 400.0, takeover=-1.0))),
    "failed": ("I10 Outages fail nothing", lambda a, _: a.update(failed_rows=[[GOOD, "attempts"]])),
    "not drained": ("I11 It drains", lambda a, _: a.update(problems=["not drained within 600 s"])),
    "hangs": ("I11 Every worker is well", lambda a, _: a.update(ill_workers=["w1.1"])),
}


@pytest.mark.parametrize(("name", "damage"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_named(name: str, damage: Damage, tmp_path: Path) -> None:
    about, files = history()
    damage(about, files)
    verdict = judged(tmp_path, about, files)
    assert verdict.word == "FAIL"
    assert name in [finding.name for finding in verdict.findings if not finding.ok]
    assert len(verdict.findings) == len(CHECKS)


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
