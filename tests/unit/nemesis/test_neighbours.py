"""The judge of the lane of the neighbours can fail: slow, lost, failed or wrong innocents, poison without a bite."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nemesis import neighbours_judge, report
from tests.nemesis.neighbours_judge import LEAST_INNOCENTS
from tests.nemesis.poison import KINDS
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


HARM: dict[str, Callable[[Told, Rows], Any]] = {
    "never ends": lambda _, rows: rows[7].update(status="pending", latency=None),
    "fails": lambda _, rows: rows[7].update(status="failed", latency=None),
    "vanishes": lambda _, rows: rows.pop(7),
    "differs": lambda told, _: told["wrong"].append("plain:7"),
    "its worker dies": lambda told, _: told["ended"].append("n1"),
}


@pytest.mark.parametrize("do", HARM.values(), ids=HARM)
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
