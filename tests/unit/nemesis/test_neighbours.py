"""The judge of the lane of the neighbours can fail: slow, lost, failed or wrong innocents, poison without a bite."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.nemesis import neighbours_judge
from tests.nemesis.neighbours_judge import LEAST_INNOCENTS
from tests.nemesis.poison import KINDS

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
