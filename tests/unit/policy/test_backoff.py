"""Backoff: bounds of every delay, growth, and how long an outage may last before a row fails."""

from hypothesis import example, given
from hypothesis import strategies as st

from outbox.config import load_settings
from outbox.policy.backoff import Backoff

BASES = st.floats(0.001, 60.0)
CAPS = st.floats(0.001, 86_400.0)
DICE = st.floats(0.0, 1.0, exclude_max=True)
ATTEMPTS = st.integers(0, 100_000)


@given(BASES, CAPS, ATTEMPTS, DICE)
@example(1.0, 300.0, 5_000, 0.999)
def test_a_delay_lies_between_half_of_the_curve_and_the_curve(
    base: float, cap: float, attempts: int, dice: float
) -> None:
    backoff = Backoff(base, cap)
    ceiling = backoff.ceiling(attempts)
    assert 0 < ceiling <= cap
    assert ceiling / 2 <= backoff.delay(attempts, dice) <= ceiling


def test_the_earliest_and_the_latest_draw_are_half_of_the_curve_apart() -> None:
    """Found by seeded bug M14: a tenth of jitter lies between half of the curve and the curve too."""
    backoff = Backoff(1.0, 300.0)
    for attempts in (1, 5, 50):
        ceiling = backoff.ceiling(attempts)
        assert backoff.delay(attempts, 0.0) == ceiling / 2
        assert backoff.delay(attempts, 0.999) > ceiling * 0.99


@given(BASES, CAPS, st.integers(1, 10_000))
def test_the_curve_doubles_until_the_cap_and_never_falls(base: float, cap: float, attempts: int) -> None:
    backoff = Backoff(base, cap)
    now, following = backoff.ceiling(attempts), backoff.ceiling(attempts + 1)
    assert now <= following
    assert following in (cap, 2 * now) or attempts > 60


def test_at_the_defaults_no_row_fails_in_an_outage_shorter_than_four_minutes() -> None:
    """With the smallest of all draws: half of 1 + 2 + 4 + ... + 256 s."""
    retry = load_settings({"DATABASE_URL": "postgresql://localhost/x"}).retry
    backoff = Backoff(retry.base_backoff_seconds, retry.max_backoff_seconds)
    shortest = sum(backoff.delay(attempt, 0.0) for attempt in range(1, retry.max_attempts))
    assert shortest == 255.5
    assert shortest >= 4 * 60
