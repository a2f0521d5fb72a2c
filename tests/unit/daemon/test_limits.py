"""The limit of items per request: halved by pressure, grown by steps, never outside its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.daemon.claiming import BatchLimit


@given(st.integers(1, 10_000), st.lists(st.booleans()))
def test_the_limit_stays_between_one_and_the_configured_size(largest: int, pressures: list[bool]) -> None:
    limit = BatchLimit.full(largest)
    for pressure in pressures:
        following = limit.after(pressure=pressure)
        assert 1 <= following.items <= largest
        assert following.items <= limit.items if pressure else following.items >= limit.items
        limit = following


def test_it_halves_on_pressure_and_comes_back_by_steps() -> None:
    limit = BatchLimit.full(500).after(pressure=True)
    assert limit.items == 250
    steps = 0
    while limit.items < 500:
        limit, steps = limit.after(pressure=False), steps + 1
    assert steps == 10


@given(st.integers(1, 10_000))
def test_it_reaches_one_item_under_lasting_pressure_and_the_full_size_again_afterwards(largest: int) -> None:
    limit = BatchLimit.full(largest)
    for _ in range(largest.bit_length()):
        limit = limit.after(pressure=True)
    assert limit.items == 1
    for _ in range(2 * 20 + 1):
        limit = limit.after(pressure=False)
    assert limit.items == largest or largest < 40


@given(st.integers(1, 10_000))
def test_a_full_limit_is_back_after_so_many_good_batches_and_then_nothing_changes(largest: int) -> None:
    limit = BatchLimit.full(largest).after(pressure=True)
    good = 0
    while limit.items < largest:
        limit, good = limit.after(pressure=False), good + 1
    assert good <= 20
    assert limit.after(pressure=False) is limit
