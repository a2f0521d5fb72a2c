"""The brakes: how many verdicts pass in any minute, and that a flood of missing rows deletes nothing."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.daemon.lookups import LookupBrake
from outbox.policy.brake import HOLD_SECONDS, MOST_FAILURES, MOST_FINGERPRINTS, WINDOW_SECONDS, Brake

STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.0, 30.0)), max_size=300)


@given(STEPS)
def test_in_no_minute_do_more_than_the_most_fail_of_one_fingerprint(steps: list[tuple[str, float]]) -> None:
    brake, now = Brake(most=5), 0.0
    failed: dict[str, list[float]] = {"a": [], "b": []}
    for fingerprint, pause in steps:
        now += pause
        if brake.admit(fingerprint, now):
            failed[fingerprint].append(now)
    for times in failed.values():
        assert all(later - earlier >= WINDOW_SECONDS for earlier, later in zip(times, times[5:], strict=False))


def test_the_contract_is_fifty_per_minute() -> None:
    brake = Brake()
    assert sum(brake.admit("x", 0.0) for _ in range(1_000)) == MOST_FAILURES == 50
    assert sum(brake.admit("x", 59.9) for _ in range(1_000)) == 0
    assert sum(brake.admit("x", 60.0) for _ in range(1_000)) == 50


def test_one_fingerprint_never_holds_up_another() -> None:
    brake = Brake(most=1)
    assert brake.admit("a", 0.0)
    assert not brake.admit("a", 0.0)
    assert brake.admit("b", 0.0)
    assert brake.is_on("a")
    assert not brake.is_on("b")
    assert brake.braked == 1


def test_an_operator_lets_all_of_a_fingerprint_fail_and_ends_its_brake() -> None:
    brake = Brake(most=1)
    brake.admit("a", 0.0)
    brake.admit("a", 0.0)
    brake.let_fail = frozenset({"a"})
    assert all(brake.admit("a", 0.0) for _ in range(100))
    assert brake.released(0.0) == [("a", 1)]
    assert brake.braked == 0


def test_the_brake_is_off_when_nothing_was_held_for_a_hold_and_a_window() -> None:
    brake = Brake(most=1)
    for _ in range(4):
        brake.admit("a", 0.0)
    assert brake.released(HOLD_SECONDS + WINDOW_SECONDS) == []
    assert brake.released(HOLD_SECONDS + WINDOW_SECONDS + 0.1) == [("a", 3)]
    assert brake.released(HOLD_SECONDS + WINDOW_SECONDS + 0.2) == []


def test_memory_is_bounded_even_if_every_error_is_different() -> None:
    brake = Brake()
    for number in range(3 * MOST_FINGERPRINTS):
        assert brake.admit(str(number), 0.0)
    assert len(brake._tracks) == MOST_FINGERPRINTS


def test_an_evicted_fingerprint_is_never_one_that_is_braked_now() -> None:
    brake = Brake(most=1)
    brake.admit("flood", 0.0)
    brake.admit("flood", 0.0)
    for number in range(2 * MOST_FINGERPRINTS):
        brake.admit(str(number), 0.0)
    assert brake.is_on("flood")
    assert not brake.admit("flood", 1.0)


def test_more_than_half_of_fifty_lookups_without_a_row_delete_nothing() -> None:
    assert LookupBrake().admit(49, 49, 0.0)
    assert LookupBrake().admit(50, 25, 0.0)
    assert not LookupBrake().admit(50, 26, 0.0)


def test_the_lookups_of_the_last_minute_count_together() -> None:
    brake = LookupBrake()
    assert brake.admit(40, 40, 0.0)
    assert not brake.admit(10, 10, 59.0)
    assert brake.admit(10, 0, 59.0), "those that were found go on"
    assert brake.admit(10, 10, 121.0)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.floats(0, 20)), max_size=60))
def test_nothing_is_deleted_while_most_lookups_of_a_minute_find_no_row(steps: list[tuple[int, int, float]]) -> None:
    brake, now = LookupBrake(), 0.0
    seen: list[tuple[float, int, int]] = []
    for looked_up, part, pause in steps:
        now += pause
        missing = min(looked_up, part)
        seen.append((now, looked_up, missing))
        minute = [entry for entry in seen if entry[0] > now - WINDOW_SECONDS]
        total, gone = sum(e[1] for e in minute), sum(e[2] for e in minute)
        if brake.admit(looked_up, missing, now) and missing:
            assert total < 50 or gone * 2 <= total
