"""The checks of the lanes failover, cluster and starvation: each holds in a good history and is broken once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.nemesis.command import RUNS
from tests.nemesis.kafka_run import KafkaRun
from tests.nemesis.lanes import LANES, OwnLane
from tests.nemesis.recipe import fixed
from tests.nemesis.run import Run
from tests.nemesis.starvation_faults import given_back
from tests.nemesis.verdict import judge
from tests.unit.nemesis.test_judge import Files, history, written

Breaking = Callable[[dict[str, Any], Files], object]


def good(name: str, lane: OwnLane) -> tuple[dict[str, Any], Files]:
    about, files = history()
    gaps = {"withdrawn": 9, "found": 2, "unexplained": [], "unsaid": [], "verify": 1, "counts": "", "doctor": []}
    groups = {"limit": 384 << 20, "peak": 300 << 20, "oom_kills": 0}
    about |= {"lane": name, "gaps": gaps, "groups": groups, "before": [], "stale_promoted": 2}
    files["rows"] = [{"_id": "page:e1", "digest": "d5"}]
    numbers = {"stayed": 0.2, "wrote": 0, "raised": True, "cores": 0.1, "lines": 3.0, "well": True, "alive": True}
    files["acts"] = [
        {"kind": kind, "bit": True, "told": "bit", "victim": "w1", "began": 5.0, "numbers": numbers}
        for kind in lane.kinds
    ]
    return about, files


def _act(kind: str, **numbers: Any) -> Breaking:
    def change(_: dict[str, Any], files: Files) -> None:
        for act in files["acts"]:
            if act["kind"] == kind:
                act["numbers"] = {**act["numbers"], **numbers}

    return change


def _about(where: str, **more: Any) -> Breaking:
    return lambda about, _: about[where].update(more)


BROKEN: list[tuple[str, str, Breaking]] = [
    ("failover", "F1", _about("gaps", unexplained=["page:e9"])),
    ("failover", "F2", _about("gaps", unsaid=["page:e9"])),
    ("failover", "F2", _about("gaps", verify=0)),
    ("failover", "F3", lambda _, files: files["rows"].append({"_id": "page:e9", "digest": "d9"})),
    ("failover", "F3", lambda _, files: files["rows"][0].update(digest="newer")),
    ("failover", "F4", _act("fo_standby", stayed=3.0)),
    ("failover", "F4", _act("fo_second", wrote=1)),
    ("failover", "F5", _act("fo_switch", raised=False)),
    ("cluster", "C1", lambda about, _: about["before"].append("page:e1")),
    ("cluster", "C1", lambda about, _: about.update(stale_promoted=0)),
    ("cluster", "C2", _about("gaps", unsaid=["page:e9"])),
    ("cluster", "C3", lambda _, files: files["rows"].clear()),
    ("starvation", "S1", _about("groups", oom_kills=1)),
    ("starvation", "S2", _act("st_pg_disk", cores=0.9)),
    ("starvation", "S2", _act("st_files", lines=500.0)),
    ("starvation", "S3", _act("st_files", well=False)),
    ("starvation", "S3", _act("st_files", alive=False)),
    ("starvation", "S4", lambda _, files: files["rows"][0].update(digest="newer")),
]


@pytest.mark.parametrize("name", LANES)
def test_a_good_history_of_each_lane_passes(name: str, tmp_path: Path) -> None:
    verdict = judge(written(tmp_path / "run", *good(name, LANES[name])))
    assert (verdict.word, [finding for finding in verdict.findings if not finding.ok]) == ("PASS", [])


@pytest.mark.parametrize(("name", "number", "breaking"), BROKEN)
def test_each_check_of_a_lane_finds_what_it_is_there_for(
    name: str, number: str, breaking: Breaking, tmp_path: Path
) -> None:
    about, files = good(name, LANES[name])
    breaking(about, files)
    broken = [finding.name for finding in judge(written(tmp_path / "run", about, files)).findings if not finding.ok]
    assert [told.split()[0] for told in broken] == [number]


def test_every_check_is_broken_once() -> None:
    assert {number for _, number, _ in BROKEN} == {number for lane in LANES.values() for number, _ in lane.checks}


def test_a_fault_that_did_not_bite_makes_a_lane_inconclusive(tmp_path: Path) -> None:
    about, files = good("cluster", LANES["cluster"])
    files["acts"] = [act for act in files["acts"] if act["kind"] != "cl_disk"]
    assert judge(written(tmp_path / "run", about, files)).word == "INCONCLUSIVE"


@pytest.mark.parametrize("kind", [Run, KafkaRun, *RUNS.values()], ids=lambda kind: kind.__name__)
def test_every_run_can_do_what_its_decks_say(kind: type[Run], tmp_path: Path) -> None:
    """The lanes build their own actors: what the runs of all came to need was missing in theirs."""
    run = kind(tmp_path, 60.0, 1, 50.0, print, fixed(kafka=kind is KafkaRun))
    run.ground, run.ledger = MagicMock(), MagicMock()
    run.prepare()
    acts = [(lane, act) for lane, deck in run.decks.items() for act in deck]
    assert acts
    assert not [(lane, act) for lane, act in acts if act not in run.workers.table and act not in run.table(lane)]


def test_a_full_disk_has_an_effect_where_events_are_given_back_and_nobody_pauses() -> None:
    settled = {"event": "batch.settled", "counts": {"done": 0, "released": 3}}
    assert given_back([settled, {"event": "sink.paused"}, {**settled, "counts": {"done": 2}}]) == 3
