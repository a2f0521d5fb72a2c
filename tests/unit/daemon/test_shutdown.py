"""A signal becomes a stop, wherever the main thread is at that moment."""

import signal
from collections.abc import Iterator

import pytest

from outbox.daemon.shutdown import FORCED, Stop
from tests.fixtures.waiting import PATIENCE_SECONDS


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = {number: signal.getsignal(number) for number in FORCED}
    stop = Stop()
    stop.install()
    yield stop
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.timeout(PATIENCE_SECONDS)
@pytest.mark.parametrize("number", FORCED)
def test_a_signal_that_comes_while_the_main_thread_has_the_lock_of_the_event_is_not_lost(
    stop: Stop, number: signal.Signals
) -> None:
    """`event.wait` has this lock for a moment, four times per second. A handler that sets the event then waits for it
    for ever: 1 of 60 processes that wait without a pause did not end."""
    with stop.event._cond:  # type: ignore[attr-defined]
        signal.raise_signal(number)
    assert stop.event.wait(PATIENCE_SECONDS)
    assert stop.cause == number.name
