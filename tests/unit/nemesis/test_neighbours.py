"""The judge of the lane of the neighbours can fail: slow, lost, failed or wrong innocents, poison without a bite."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.nemesis import neighbours_judge, report
from tests.nemesis.archive import pack
from tests.nemesis.evidence import Evidence
from tests.nemesis.neighbours import seconds_for
from tests.nemesis.neighbours_judge import FLOOR_SECONDS, LEAST_INNOCENTS
from tests.nemesis.poison import KINDS, Brew
from tests.nemesis.verdict import judge
from tests.unit.nemesis.test_judge import ABOUT, history, written

CALM_SECONDS = 0.2
Told = dict[str, Any]
Rows = list[dict[str, Any]]


def lane(innocents: int = LEAST_INNOCENTS) -> tuple[Told, Rows]:
    """As many innocents calm as beside poison, each done after 0.2 s; each poison bit."""
    spans = [("calm", 0.0, 10.0), ("poison", 10.0, 30.0), ("calm again", 40.0, 50.0)]
    told: Told = {
        "asked_seconds": 40.0,
        "rate": 50.0,
        "workers": 2,
        "phases": [{"name": name, "began": began, "ended": ended} for name, began, ended in spans],
        "committed": 2 * innocents,
        "documents": 10,
        "wrong": [],
        "ended": [],
        "left_out": [],
        "problems": [],
        "poison": {name: {"made": 9, "bit": 3, "states": {"failed": 9}, "meant": "x"} for name in KINDS},
    }
    places = [
        (began + (ended - began) * n / (2 * innocents)) for _, began, ended in spans for n in range(2 * innocents)
    ]
    wanted = [*places[: 2 * innocents : 4], *places[2 * innocents : 4 * innocents : 2], *places[4 * innocents :: 4]]
    return told, [row(created) for created in wanted]


def row(created: float, latency: float | None = CALM_SECONDS, status: str = "done") -> dict[str, Any]:
    return {"created": created, "latency": latency, "status": status, "type": "plain", "op": "upsert", "attempts": 1}


def broken(told: Told, rows: Rows) -> list[str]:
    return [finding.name for finding in neighbours_judge.judged(told, rows).findings if not finding.ok]


def beside_poison(rows: Rows) -> Rows:
    return [one for one in rows if 10 <= one["created"] < 30]


def test_innocents_that_are_as_quick_as_in_a_calm_pass() -> None:
    told, rows = lane()
    found = neighbours_judge.judged(told, rows)
    assert (found.calm.innocents, found.poison.innocents) == (LEAST_INNOCENTS, LEAST_INNOCENTS)
    assert (broken(told, rows), found.doubts) == ([], [])


@pytest.mark.parametrize(("share", "latency", "ok"), [(0.02, 0.41, False), (0.02, 0.39, True), (0.005, 9.0, True)])
def test_a_p99_of_twice_the_calm_one_is_found(share: float, latency: float, ok: bool) -> None:
    told, rows = lane()
    slow = beside_poison(rows)
    for one in slow[: int(len(slow) * share)]:
        one["latency"] = latency
    assert broken(told, rows) == ([] if ok else ["neighbours: in time"])


def test_a_calm_that_is_quicker_than_the_floor_counts_as_the_floor() -> None:
    told, rows = lane()
    for one in rows:
        one["latency"] = 2.2 * FLOOR_SECONDS if 10 <= one["created"] < 30 else 0.001
    assert broken(told, rows) == ["neighbours: in time"]
    for one in beside_poison(rows):
        one["latency"] = 1.9 * FLOOR_SECONDS
    assert broken(told, rows) == []


def test_a_calm_that_was_slow_itself_shows_nothing() -> None:
    told, rows = lane()
    for one in rows:
        one["latency"] = 9.0 if 10 <= one["created"] < 30 else 1.1
    assert broken(told, rows) == []
    (doubt,) = neighbours_judge.judged(told, rows).doubts
    assert "too busy" in doubt


def test_a_lane_that_is_too_short_judges_no_p99_and_says_so() -> None:
    told, rows = lane(200)
    for one in beside_poison(rows):
        one["latency"] = 9.0
    assert broken(told, rows) == []
    assert "not judged" in neighbours_judge.judged(told, rows).findings[1].observed


def never_end(told: Told, rows: Rows) -> None:
    rows[7] |= {"status": "pending", "latency": None}


def fail(told: Told, rows: Rows) -> None:
    rows[7] |= {"status": "failed", "latency": None}


def vanish(told: Told, rows: Rows) -> None:
    rows.pop(7)


def differ(told: Told, rows: Rows) -> None:
    told["wrong"].append("plain:7")


def die(told: Told, rows: Rows) -> None:
    told["ended"].append("n1")


def be_nobody(told: Told, rows: Rows) -> None:
    told["committed"] = 0
    rows.clear()


@pytest.mark.parametrize("do", [never_end, fail, vanish, differ, die, be_nobody])
def test_an_innocent_that_is_harmed_is_found(do: Any) -> None:
    told, rows = lane()
    do(told, rows)
    assert broken(told, rows)[:1] == ["neighbours: whole"]


def judged_in(folder: Path, told: Told, rows: Rows, *, storm: bool = True) -> Any:
    """As a run leaves it: the lane beside a good storm, or alone."""
    about, files = history()
    found = written(folder, about if storm else ABOUT | {"lane": "neighbours", "minutes": 2}, files)
    (folder / "neighbours.json").write_text(json.dumps(told))
    columns = list(rows[0])
    lines = [columns, *([one[name] for name in columns] for one in rows)]
    (folder / "innocents.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return judge(found)


@pytest.mark.parametrize("storm", [True, False])
def test_a_lane_is_judged_with_its_storm_and_alone(storm: bool, tmp_path: Path) -> None:
    told, rows = lane()
    good = judged_in(tmp_path / "good", told, rows, storm=storm)
    assert (good.word, good.neighbours.doubts) == ("PASS", [])
    for one in beside_poison(rows):
        one["latency"] = 9.0
    slow = judged_in(tmp_path / "slow", told, rows, storm=storm)
    assert (slow.word, slow.why, slow.code) == ("FAIL", "broken: neighbours: in time", 1)
    page = report.text(slow, ABOUT | {"minutes": 2, "rate": 50})
    assert "p99 9.000 s" in page
    assert "red_shard" in page
    assert ("acknowledged" in page) == storm


@pytest.mark.parametrize("storm", [True, False])
def test_a_poison_that_did_not_bite_shows_nothing(storm: bool, tmp_path: Path) -> None:
    told, rows = lane()
    told["poison"]["red_shard"]["bit"] = 2
    verdict = judged_in(tmp_path, told, rows, storm=storm)
    assert (verdict.word, verdict.code) == ("INCONCLUSIVE", 3)
    assert verdict.why == "poison red_shard bit 2 times, 3 were needed"


def test_a_lane_that_broke_off_shows_nothing(tmp_path: Path) -> None:
    told, rows = lane()
    told["problems"].append("the poisoner broke off")
    assert judged_in(tmp_path, told, rows).word == "INCONCLUSIVE"


def test_a_storm_that_broke_an_invariant_stays_broken_beside_a_good_lane(tmp_path: Path) -> None:
    about, files = history()
    files["documents"][0]["version"] = 4
    found = written(tmp_path, about, files)
    told, rows = lane()
    (tmp_path / "neighbours.json").write_text(json.dumps(told))
    (tmp_path / "innocents.ndjson").write_text("".join(json.dumps(one) + "\n" for one in rows))
    verdict = judge(found)
    assert verdict.word == "FAIL"
    assert "I3" in verdict.why


def test_the_lane_is_in_the_archive(tmp_path: Path) -> None:
    judged_in(tmp_path / "run", *lane())
    pack(Evidence(tmp_path / "run"), tmp_path / "history.tar.xz")
    with tarfile.open(tmp_path / "history.tar.xz") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    again = judge(Evidence(tmp_path / "unpacked"))
    assert again.as_json() == judge(Evidence(tmp_path / "run")).as_json()
    assert again.neighbours is not None


def test_every_kind_of_poison_can_be_made_and_the_same_seed_makes_the_same() -> None:
    brews = [Brew(1, [("attempts", "integer")], "0", "1") for _ in range(2)]
    for kind in KINDS.keys() - {"altered_column"}:
        first, again = (brew.row(kind) for brew in brews)
        assert first[0].keys() == again[0].keys()
    assert [brew.row("extreme") for brew in brews[:1]] == [brew.row("extreme") for brew in brews[1:]]


def test_the_lane_of_the_tests_is_short() -> None:
    assert seconds_for(120) < 12
    assert seconds_for(1_800) >= 120
