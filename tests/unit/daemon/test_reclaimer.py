"""Who counts as dead: killed workers do, workers that were cut off do not."""

import os
import socket
import subprocess
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from outbox.daemon.reclaimer import SWEEP_SECONDS, Reclaimer
from outbox.errors import DatabaseDown
from outbox.facts import DatabaseLost, Fact, Reclaimed
from outbox.ports import Reclaim, Sweep
from tests.fixtures.events import Time

HERE = socket.gethostname()
START = uuid4()


class Store:
    """Answers the steps that the test has laid out."""

    def __init__(self, *steps: Reclaim | Exception) -> None:
        self.steps = list(steps)
        self.stray = 0
        self.sweeps = 0

    def step(self, is_dead: Callable[[tuple[Any, ...]], bool]) -> Reclaim:
        step = self.steps.pop(0) if self.steps else Reclaim(0, 0, 0)
        if isinstance(step, Exception):
            raise step
        return step

    def sweep(self) -> Sweep:
        self.sweeps += 1
        stray, self.stray = self.stray, 0
        return Sweep(stray, finished=True)


def a_reclaimer(store: Store | None = None) -> tuple[Reclaimer, list[Fact], Time]:
    facts: list[Fact] = []
    clock = Time()
    store = store or Store()
    return Reclaimer(store.step, store.sweep, facts.append, clock, 5.0, 10.0), facts, clock


def dead_pid() -> int:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    return child.pid


def a_lease(**values: Any) -> tuple[Any, ...]:
    fields = {"start": START, "rows": 5, "worker": START, "host": "far", "pid": 1, "silent": False, "state": "running"}
    return tuple({**fields, **values}.values())


@pytest.mark.parametrize(
    ("lease", "expected"),
    [
        pytest.param(a_lease(), False, id="it beats: its lane hangs, its process lives"),
        pytest.param(a_lease(worker=None), True, id="nobody knows its worker any more"),
        pytest.param(a_lease(worker=uuid4()), True, id="a later start holds its worker id"),
        pytest.param(a_lease(silent=True), True, id="silent for three intervals"),
        pytest.param(a_lease(host=HERE, pid=os.getpid()), False, id="its pid lives on this host"),
        pytest.param(a_lease(host=HERE, pid=dead_pid()), True, id="its pid is dead on this host"),
        pytest.param(a_lease(host="far", pid=dead_pid()), False, id="a pid on another host says nothing"),
        pytest.param(a_lease(silent=True, state="stopped"), False, id="it left in good order"),
    ],
)
def test_the_evidence_decides_who_was_killed(lease: tuple[Any, ...], expected: bool) -> None:
    reclaimer, _, clock = a_reclaimer()
    reclaimer.pass_once()
    clock.passes(31)
    assert reclaimer.is_dead(lease) is expected


def test_silence_is_no_evidence_until_we_have_been_connected_for_three_intervals() -> None:
    reclaimer, _, clock = a_reclaimer()
    reclaimer.pass_once()
    clock.passes(30)
    assert not reclaimer.is_dead(a_lease(silent=True))
    clock.passes(1)
    assert reclaimer.is_dead(a_lease(silent=True))


def test_an_outage_that_the_reclaimer_met_starts_the_count_again() -> None:
    store = Store()
    reclaimer, facts, clock = a_reclaimer(store)
    reclaimer.pass_once()
    clock.passes(100)
    store.steps = [DatabaseDown("away")]
    reclaimer.pass_once()
    reclaimer.pass_once()
    assert not reclaimer.is_dead(a_lease(silent=True))
    assert [type(fact) for fact in facts if isinstance(fact, DatabaseLost)] == [DatabaseLost]


def test_so_does_one_that_only_another_loop_met_between_two_passes() -> None:
    reclaimer, _, clock = a_reclaimer()
    reclaimer.pass_once()
    clock.passes(100)
    reclaimer.handle(DatabaseLost("lane-0", "away"))
    reclaimer.pass_once()
    assert not reclaimer.is_dead(a_lease(silent=True))
    clock.passes(31)
    assert reclaimer.is_dead(a_lease(silent=True))


def test_a_pass_takes_steps_until_nothing_is_left_and_says_it_once() -> None:
    reclaimer, facts, _ = a_reclaimer(Store(Reclaim(500, 500, 0), Reclaim(500, 0, 0), Reclaim(7, 7, 1)))
    reclaimer.pass_once()
    assert [fact for fact in facts if isinstance(fact, Reclaimed)] == [Reclaimed(1_007, 507, 1)]


def test_stray_rows_are_swept_at_the_start_and_every_ten_minutes() -> None:
    store = Store()
    reclaimer, facts, clock = a_reclaimer(store)
    store.stray = 3
    for _ in range(3):
        reclaimer.pass_once()
        clock.passes(5)
    assert store.sweeps == 1
    assert [fact for fact in facts if isinstance(fact, Reclaimed)] == [Reclaimed(3, 0, 0)]
    clock.passes(SWEEP_SECONDS)
    reclaimer.pass_once()
    assert store.sweeps == 2
