"""The limit of items per request: halved by pressure, grown by steps, never outside its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.daemon.claiming import SharedLimit
from outbox.facts import silent
from outbox.policy.outcome import Failure, Reason
from outbox.ports import WriteReport

GOOD, PRESSED = WriteReport(()), WriteReport((), pressure=True)
DOWN = WriteReport((), unreachable=Failure(Reason.CONNECT, "no"))


@given(st.integers(1, 10_000), st.lists(st.sampled_from([GOOD, PRESSED])))
def test_the_limit_stays_between_one_and_the_configured_size(largest: int, reports: list[WriteReport]) -> None:
    limit = SharedLimit(largest, silent)
    for report in reports:
        before = limit.items()
        limit.report(report)
        assert 1 <= limit.items() <= largest
        assert limit.items() <= before if report.pressure else limit.items() >= before


def test_it_halves_on_pressure_and_comes_back_by_ten_steps_of_good_batches_alone() -> None:
    limit = SharedLimit(500, silent)
    limit.report(PRESSED)
    limit.report(DOWN)
    assert limit.items() == 250
    for steps in range(10):
        assert limit.items() == 250 + 25 * steps
        limit.report(GOOD)
    assert limit.items() == 500


@given(st.integers(1, 10_000))
def test_it_reaches_one_item_under_lasting_pressure_and_the_full_size_again_afterwards(largest: int) -> None:
    limit = SharedLimit(largest, silent)
    for _ in range(largest.bit_length()):
        limit.report(PRESSED)
    assert limit.items() == 1
    for _ in range(2 * 20 + 1):
        limit.report(GOOD)
    assert limit.items() == largest or largest < 40
