"""Nothing is called drift before a second check, and what never rests is in flux."""

from collections.abc import Callable, Sequence

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
    """Doubts whose checks are scripted; time passes only by resting."""

    def __init__(self, look: Callable[[Mismatch], Recheck]) -> None:
        self.time = Time()
        self.certain: list[DriftFinding] = []
        self.flux: list[Mismatch] = []
        self.looks = 0
        self._look = look
        self.doubts = Mismatches(self.again, self.certain.append, self.flux.append, self.time, self.time.passes)

    def again(self, doubts: Sequence[Mismatch]) -> list[Recheck]:
        self.looks += 1
        return [self._look(doubt) for doubt in doubts]

    def add(self, seen: tuple[object, ...] = ("a",)) -> None:
        self.doubts.add(Mismatch("i", "article:1", KEY, seen, self.time()))


def test_the_same_again_is_drift() -> None:
    bench = Bench(lambda _: Recheck(("a",), WRONG))
    bench.add()
    bench.doubts.advance()
    assert bench.certain == [], "a second look needs a pause"
    bench.doubts.drain()
    assert bench.certain == [WRONG]
    assert bench.looks == 1


def test_what_has_come_right_is_forgotten() -> None:
    bench = Bench(lambda _: Recheck(("b",), None))
    bench.add()
    bench.doubts.drain()
    assert (bench.certain, bench.flux) == ([], [])


def test_an_open_event_puts_the_verdict_off_until_it_is_in_flux() -> None:
    bench = Bench(lambda _: Recheck(("a",), WRONG, open=True))
    bench.add()
    bench.doubts.drain()
    assert bench.certain == []
    assert len(bench.flux) == 1
    assert bench.looks == len(WAITS_SECONDS)


def test_what_changes_at_every_check_is_in_flux() -> None:
    turns = iter(range(100))
    bench = Bench(lambda _: Recheck((next(turns),), WRONG))
    bench.add()
    bench.doubts.drain()
    assert (len(bench.certain), len(bench.flux)) == (0, 1)


def test_a_change_starts_the_comparison_of_checks_anew() -> None:
    seen = iter(["b", "b"])
    bench = Bench(lambda _: Recheck((next(seen),), WRONG))
    bench.add()
    bench.doubts.drain()
    assert bench.certain == [WRONG]
    assert bench.looks == 2


def test_too_many_doubts_make_the_walk_wait() -> None:
    bench = Bench(lambda _: Recheck(("a",), WRONG))
    for _ in range(MOST + 1):
        bench.add()
    bench.doubts.advance()
    assert len(bench.certain) == MOST + 1


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.floats(10, 10_000))
def test_a_pace_never_runs_ahead_of_its_rate_by_more_than_a_second(portions: list[int], rate: float) -> None:
    time = Time()
    started = time()
    pace = JobPace(rate, clock=time, rest=time.passes)
    for items in portions:
        pace.took(items)
    assert sum(portions) <= rate * (time() - started + 1.001) + 1e-6 * sum(portions)


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


def test_a_rate_of_nothing_never_rests() -> None:
    JobPace(0, rest=lambda _: 1 / 0).took(10_000)
