"""Waiting until what was there before is settled."""

from outbox.ops.status import Waited, wait_until_caught_up
from tests.fixtures.events import Time


class BusyQueue:
    """Open events by seq; each check settles the lowest and adds a newer one, as a busy producer does."""

    def __init__(self, n: int) -> None:
        self.open = list(range(1, n + 1))

    def last_seq(self) -> int:
        return self.open[-1]

    def open_up_to(self, seq: int) -> int:
        left = sum(each <= seq for each in self.open)
        self.open = [*self.open[1:], self.open[-1] + 1]
        return left


def waited(events: int, limit: float | None) -> tuple[Waited, float]:
    time = Time(0.0)
    return wait_until_caught_up(BusyQueue(events), limit, sleep=time.passes, clock=time), time.now


def test_later_events_do_not_count_or_a_busy_queue_would_never_be_caught_up() -> None:
    found, _ = waited(5, None)
    assert (found.caught_up, found.left) == (True, 0)


def test_the_time_limit_says_how_many_are_left() -> None:
    found, _ = waited(100, 1.0)
    assert not found.caught_up
    assert (found.left or 0) > 0
    assert 1.0 <= found.waited_seconds < 1.3
