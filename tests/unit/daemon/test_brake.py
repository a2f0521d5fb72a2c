"""The brake: how many verdicts pass in any minute, and that a flood of missing rows deletes nothing."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.daemon.brake import MOST_FAILURES, MOST_FINGERPRINTS, WINDOW_SECONDS, Brake
from outbox.daemon.view_trust import LOOKUPS, Lookups
from outbox.facts import BrakeOff, BrakeOn, Fact
from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import HOLD_SECONDS, TOO_MANY_GONE
from tests.fakes import MemoryEvents, NoView
from tests.fixtures.events import Time


class BrakeBench:
    """A brake with what it announces."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.clock = Time()
        self.brake = Brake(self.facts.append, self.clock)

    def admits(self, fingerprint: str, times: int = 1) -> int:
        failure = Failure(Reason.ES_REJECTED_DOCUMENT, "no", fingerprint=fingerprint)
        return sum(self.brake.admits(failure) for _ in range(times))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 30), st.floats(0.0, 30.0)), max_size=100))
def test_in_no_minute_do_more_than_fifty_fail_of_one_fingerprint(steps: list[tuple[str, int, float]]) -> None:
    held = BrakeBench()
    failed: dict[str, list[float]] = {"a": [], "b": []}
    for fingerprint, times, pause in steps:
        held.clock.passes(pause)
        failed[fingerprint] += [held.clock()] * held.admits(fingerprint, times)
    for at in failed.values():
        assert all(late - early >= WINDOW_SECONDS for early, late in zip(at, at[MOST_FAILURES:], strict=False))


def test_an_operator_lets_all_of_a_fingerprint_fail_and_ends_its_brake() -> None:
    held = BrakeBench()
    held.admits("a", 51)
    held.brake.let_fail(frozenset({"a"}))
    assert held.admits("a", 100) == 100
    assert held.facts[1:] == [BrakeOff("a", 1)]


def test_the_brake_is_off_when_nothing_was_held_for_a_hold_and_a_window() -> None:
    held = BrakeBench()
    held.admits("a", 53)
    held.clock.passes(HOLD_SECONDS + WINDOW_SECONDS)
    held.brake.let_fail(frozenset())
    assert held.facts[1:] == []
    held.clock.passes(0.1)
    held.brake.let_fail(frozenset())
    held.brake.let_fail(frozenset())
    assert held.facts[1:] == [BrakeOff("a", 3)]


class Half:
    """Lookups of entity types."""

    def __init__(self) -> None:
        self.held = BrakeBench()
        self.lookups = Lookups(MemoryEvents(), NoView(), self.held.facts.append, self.held.clock, self.held.brake)

    def admits(self, looked_up: int, gone: int, kind: str = "a") -> bool:
        return self.lookups._admits(kind, looked_up, gone)


def test_more_than_half_of_fifty_lookups_of_a_minute_without_a_row_delete_nothing() -> None:
    for looked_up, gone, admitted in ((49, 49, True), (50, 25, True), (50, 26, False)):
        assert Half().admits(looked_up, gone) is admitted
    half = Half()
    assert half.admits(40, 40)
    half.held.clock.passes(59.0)
    assert not half.admits(10, 10)
    assert half.admits(10, 10, "b")
    assert half.admits(10, 0), "those that were found go on"
    half.held.brake.hold(f"{LOOKUPS}:a", 10, TOO_MANY_GONE)
    half.held.brake.let_fail(frozenset({LOOKUPS}))
    assert half.admits(10, 10), "an operator has checked all types"
    half.held.brake.let_fail(frozenset())
    half.held.clock.passes(62.0)
    assert half.admits(10, 10)
    assert [type(fact) for fact in half.held.facts] == [BrakeOn, BrakeOff]


def test_one_fingerprint_never_holds_up_another_and_is_announced_once() -> None:
    held = BrakeBench()
    assert held.admits("a", 1_000) == MOST_FAILURES == 50
    assert held.admits("b")
    assert held.facts == [BrakeOn("a", Reason.ES_REJECTED_DOCUMENT, "no")]


def test_memory_is_bounded_and_never_by_forgetting_what_is_braked_now() -> None:
    held = BrakeBench()
    held.admits("flood", 51)
    assert all(held.admits(str(number)) for number in range(2 * MOST_FINGERPRINTS))
    assert len(held.brake._tracks) == MOST_FINGERPRINTS
    held.clock.passes(1.0)
    assert not held.admits("flood")
