"""Waiting until what was there before is settled."""

from outbox.ops.status import wait_until_caught_up


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


class Time:
    now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_later_events_do_not_count_or_a_busy_queue_would_never_be_caught_up() -> None:
    time = Time()
    waited = wait_until_caught_up(BusyQueue(5), None, sleep=time.sleep, clock=time.clock)
    assert waited.caught_up
    assert waited.left == 0


def test_the_time_limit_says_how_many_are_left() -> None:
    time = Time()
    waited = wait_until_caught_up(BusyQueue(100), 1.0, sleep=time.sleep, clock=time.clock)
    assert not waited.caught_up
    assert waited.left is not None
    assert waited.left > 0
    assert 1.0 <= waited.waited_seconds < 1.3


def test_a_limit_of_nothing_checks_once() -> None:
    time = Time()
    waited = wait_until_caught_up(BusyQueue(2), 0.0, sleep=time.sleep, clock=time.clock)
    assert (waited.caught_up, waited.left, time.now) == (False, 2, 0.0)
