"""A verification that ran elsewhere is announced once, with its own time."""

from outbox.daemon.upkeep import News, Rarely
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
