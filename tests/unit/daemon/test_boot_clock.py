"""The boot clock: which of the system's clocks it reads, and that no part of the daemon has a clock of its own."""

import inspect

import pytest

from outbox.daemon.claiming import Claimer
from outbox.daemon.lease import Holding, Leases, best_clock
from outbox.reindex.second_target import SecondTarget


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        pytest.param({"CLOCK_MONOTONIC": 1, "CLOCK_MONOTONIC_RAW": 4, "CLOCK_BOOTTIME": 7}, 7, id="Linux"),
        pytest.param({"CLOCK_MONOTONIC": 6, "CLOCK_MONOTONIC_RAW": 4, "CLOCK_UPTIME_RAW": 8}, 4, id="macOS"),
        pytest.param({"CLOCK_MONOTONIC": 4, "CLOCK_UPTIME": 5}, 4, id="neither"),
    ],
)
def test_the_clock_that_goes_on_in_sleep_is_read_where_the_system_has_one(known: dict[str, int], chosen: int) -> None:
    assert best_clock(known) == chosen


@pytest.mark.parametrize("part", [Holding, Leases, SecondTarget, Claimer], ids=lambda part: part.__name__)
def test_who_counts_leases_has_no_clock_unless_it_is_given_one(part: type) -> None:
    """A default would let two parts run by two clocks: then every lease seems expired where one of them is ahead."""
    clocks = [p for name, p in inspect.signature(part).parameters.items() if name in ("clock", "boot_clock")]
    assert [p.default for p in clocks] == [inspect.Parameter.empty]
