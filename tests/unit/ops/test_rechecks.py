"""Nothing is called drift before a second check, and what never rests is in flux."""

from collections.abc import Callable, Iterable, Sequence
from itertools import count, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.drift import DriftFinding, Key, Kind
from outbox.reindex.mismatches import MOST, WAITS_SECONDS, Mismatch, Mismatches, Recheck
from outbox.reindex.pacing import JobPace
from tests.fixtures.events import Time

KEY = Key("article", "1")
WRONG = DriftFinding(Kind.STALE, "i", "article:1", KEY)


class Bench:
    """One doubt whose checks are scripted; time passes only by resting."""

    def __init__(self, checks: Iterable[Recheck], arrived: Callable[[], bool] = lambda: True) -> None:
        self.time = Time()
        self.certain: list[DriftFinding] = []
        self.flux: list[Mismatch] = []
        self.looks = 0
        self.checks = iter(checks)
        self.doubts = Mismatches(
            self.again, self.certain.append, self.flux.append, self.time, self.time.passes, arrived=arrived
        )

    def again(self, doubts: Sequence[Mismatch]) -> list[Recheck]:
        self.looks += 1
        return [next(self.checks) for _ in doubts]

    def add(self) -> None:
        self.doubts.add(Mismatch("i", "article:1", KEY, ("a",), self.time()))


SAME = Recheck(("a",), WRONG)
CHANGED = Recheck(("b",), WRONG)
CASES: dict[str, tuple[Iterable[Recheck], int, int, int]] = {
    "the same again is drift": ([SAME], 1, 0, 1),
    "what has come right is forgotten": ([Recheck(("b",), None)], 0, 0, 1),
    "an open event puts the verdict off": (repeat(Recheck(("a",), WRONG, open=True)), 0, 1, len(WAITS_SECONDS)),
    "what changes at every check is in flux": ((Recheck((n,), WRONG) for n in count()), 0, 1, len(WAITS_SECONDS)),
    "a change starts the comparison anew": ([CHANGED, CHANGED], 1, 0, 2),
}


@pytest.mark.parametrize(("checks", "certain", "flux", "looks"), CASES.values(), ids=CASES)
def test_nothing_is_drift_before_a_second_check_that_finds_the_same(
    checks: Iterable[Recheck], certain: int, flux: int, looks: int
) -> None:
    bench = Bench(checks)
    bench.add()
    bench.doubts.advance()
    assert bench.certain == [], "a second look needs a pause"
    bench.doubts.drain()
    assert (bench.certain, len(bench.flux), bench.looks) == ([WRONG] * certain, flux, looks)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.floats(10, 10_000))
def test_a_pace_never_runs_ahead_of_its_rate_by_more_than_a_second(portions: list[int], rate: float) -> None:
    time = Time()
    started = time()
    pace = JobPace(rate, clock=time, rest=time.passes)
    for items in portions:
        pace.took(items)
    assert sum(portions) <= rate * (time() - started + 1.001) + 1e-6 * sum(portions)


def test_too_many_doubts_make_the_walk_wait() -> None:
    bench = Bench(repeat(SAME))
    for _ in range(MOST + 1):
        bench.add()
    bench.doubts.advance()
    assert len(bench.certain) == MOST + 1


def test_a_backlog_of_production_slows_the_job_to_a_fifth_until_it_is_gone() -> None:
    time, waits = Time(), [True]
    pace = JobPace(1000, lambda: waits[0], time, time.passes)
    started = time()
    for _ in range(20):
        pace.took(500)
    assert time() - started == pytest.approx(20 * 500 / 200, abs=2)
    waits[0] = False
    again = time()
    for _ in range(20):
        pace.took(500)
    assert time() - again == pytest.approx(20 * 500 / 1000, abs=3)
