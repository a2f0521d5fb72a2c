"""A verification that ran elsewhere is announced once, with its own time."""

from contextlib import suppress

from outbox.daemon.upkeep import News, Rarely
from outbox.errors import DatabaseDown
from outbox.facts import Fact, IndexVerified
from outbox.policy.reindex import LastVerification
from tests.fixtures.events import Time


def test_each_result_is_announced_once_and_asked_for_now_and_then() -> None:
    clock, facts = Time(), list[Fact]()
    asked: list[int] = []
    results: list[LastVerification | None] = [None]
    news = News(facts.append)

    def tell() -> None:
        asked.append(1)
        news.verification(results[-1])

    watch = Rarely(10.0, tell, clock)
    watch.tend()
    watch.tend()
    assert len(asked) == 1
    assert facts == []
    results.append(LastVerification(7, 100, {"missing": 2}, 1_700_000_000.0, 3.5))
    for _ in range(3):
        clock.passes(10.0)
        watch.tend()
    assert facts == [IndexVerified({"missing": 2}, 100, 3.5, 1_700_000_000.0)]


def test_what_fails_is_done_again_soon_and_not_at_each_call() -> None:
    clock, asked = Time(), list[float]()

    def fail() -> None:
        asked.append(clock())
        raise DatabaseDown("statement timeout")

    watch = Rarely(3600.0, fail, clock)
    for _ in range(25):
        with suppress(DatabaseDown):
            watch.tend()
        clock.passes(1.0)
    assert len(asked) == 3
