"""Local processes that die: replaced as long as the work gets on, and no longer."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from outbox.reindex import part_processes
from outbox.reindex.parallel import PartJob
from outbox.reindex.part_processes import MOST_DEATHS, LocalProcesses, PartProcessDied
from outbox.reindex.parts import PartsProgress

JOB = PartJob("verification", 7, 0.0, 1, "alice")


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalProcesses]:
    """Every process ends without a word."""
    monkeypatch.setattr(part_processes, "ENTRY", "no_such_module")
    monkeypatch.setattr(part_processes, "CHECK_SECONDS", 0)
    engine = LocalProcesses({}, 1)
    table: Any = SimpleNamespace(numbers=lambda: [1], free=lambda owners: None)
    engine.start(JOB, table)
    yield engine
    engine.stop()


def tend(engine: LocalProcesses, done: int) -> None:
    for each in engine._running:
        each.process.wait(30)
    engine.tend(PartsProgress(parts=1, open=1, written=done))


def test_a_part_that_ends_each_process_after_its_first_page_ends_the_work(dying: LocalProcesses) -> None:
    """Its count goes up and down with every process that begins anew, and the work gets nowhere."""
    for turn in range(2 + MOST_DEATHS):  # the first two see progress
        tend(dying, 500 * (turn % 2))
    with pytest.raises(PartProcessDied, match=f"{MOST_DEATHS + 1} in a row"):
        tend(dying, 500)


def test_deaths_between_which_the_work_gets_on_do_not_add_up(dying: LocalProcesses) -> None:
    for turn in range(MOST_DEATHS + 5):
        tend(dying, 500 * turn)
