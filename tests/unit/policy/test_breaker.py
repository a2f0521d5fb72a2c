"""Keeping away from a sink that does not answer: a lane's pace, and the probes."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.backoff import MOST_PACE_SECONDS, PROBE_SECONDS, LanePace, probe_delay

DICE = st.floats(0.0, 1.0, exclude_max=True)


@given(st.floats(0.001, 60.0), st.floats(0.001, 86_400.0), st.lists(DICE, max_size=50))
def test_a_lane_waits_at_most_ten_seconds_and_at_most_the_longest_backoff(
    base: float, cap: float, dice: list[float]
) -> None:
    pace = LanePace(base, cap)
    for failures, chance in enumerate(dice):
        ceiling = min(MOST_PACE_SECONDS, cap, base * 2.0 ** min(failures, 30))
        assert ceiling / 2 <= pace.failed(chance) <= ceiling


@given(st.integers(0, 10_000), DICE)
def test_probes_are_at_most_five_seconds_apart(tries: int, dice: float) -> None:
    assert 0.0 < probe_delay(tries, dice) <= PROBE_SECONDS == 5.0


def test_a_lanes_wait_doubles_from_the_base_and_the_first_success_ends_it() -> None:
    pace = LanePace(1.0, 300.0)
    assert [pace.failed(0.0) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    pace.succeeded()
    assert pace.failed(0.0) == 0.5
