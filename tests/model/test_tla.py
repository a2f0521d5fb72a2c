"""The models of docs/model hold, and each of their mutations is refuted, as the tables of their page say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model.tlc import MODELS, check

PAGE = (MODELS / "README.md").read_text(encoding="utf-8")
BOUND = re.compile(r"`(\w+) = ([^`]+)`")
Row = list[str]


def rows(header: str, place: int = 0) -> list[Row]:
    """The cells of a table of the page."""
    table = PAGE.split(f"\n{header}\n")[1 + place].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


HOLDS = rows("| model | other bounds | states | steps |")
DEEPER = rows("| model | other bounds | states | steps |", 1)
REFUTED = rows("| model | mutation | other bounds | breaks | steps |")
DEEPLY_REFUTED = rows("| model | mutation | other bounds | breaks | steps |", 1)


ONE_OF_EACH = (
    "Refresh drawn at the insert",
    "Payload no check before the send",
    "Fanout expanded in the writer's transaction",
    "Places a place is noted at the settle",
    "Declarations not read back",
    "Rebuild workers are not waited for",
)


def named(row: Row) -> str:
    return " ".join(cell for cell in row[:2] if cell).replace("`", "")


def holds(row: Row, folder: Path, *, thorough: bool = False) -> None:
    model, bounds, states, steps = row
    checked = check(model, folder, dict(BOUND.findall(bounds)), thorough=thorough)
    assert checked.broken is None, checked.trace
    assert (f"{checked.states:,}", str(checked.depth)) == (states, steps)


def is_refuted(row: Row, folder: Path, *, thorough: bool = False) -> None:
    model, mutation, bounds, breaks, steps = row
    checked = check(model, folder, {"Bug": f'"{mutation}"', **dict(BOUND.findall(bounds))}, thorough=thorough)
    assert checked.broken == breaks, checked.trace
    assert len(checked.trace) == int(steps)


@pytest.mark.parametrize("row", HOLDS, ids=named)
def test_every_order_of_steps_and_faults_ends_right(row: Row, tmp_path: Path) -> None:
    holds(row, tmp_path)


@pytest.mark.release("what refutes a mutation is in the model, which no program changes", keep=ONE_OF_EACH)
@pytest.mark.parametrize("row", REFUTED, ids=named)
def test_a_rule_that_is_broken_is_refuted_by_a_trace(row: Row, tmp_path: Path) -> None:
    is_refuted(row, tmp_path)


@pytest.mark.release("takes minutes, and the smaller bounds find every mutation")
@pytest.mark.slow
@pytest.mark.parametrize("row", DEEPER, ids=named)
def test_larger_bounds_hold_too(row: Row, tmp_path: Path) -> None:
    holds(row, tmp_path, thorough=True)


@pytest.mark.release("searches deeper than the other mutations need")
@pytest.mark.parametrize("row", DEEPLY_REFUTED, ids=named)
def test_a_rule_about_two_faults_at_once_is_refuted(row: Row, tmp_path: Path) -> None:
    is_refuted(row, tmp_path, thorough=True)
