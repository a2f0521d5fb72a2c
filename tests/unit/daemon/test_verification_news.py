"""A verification that ran elsewhere is announced once, with its own time."""

from outbox.daemon.upkeep import NEWS_SECONDS, VerificationNews
from outbox.facts import Fact, IndexVerified
from outbox.policy.reindex import LastVerification
from tests.fixtures.events import Time


def test_each_result_is_announced_once_and_asked_for_now_and_then() -> None:
    clock, facts = Time(), list[Fact]()
    asked: list[int] = []
    results: list[LastVerification | None] = [None]

    def last() -> LastVerification | None:
        asked.append(1)
        return results[-1]

    news = VerificationNews(last, facts.append, clock)
    news.tend()
    news.tend()
    assert len(asked) == 1
    assert facts == []
    results.append(LastVerification(7, 100, {"missing": 2}, 1_700_000_000.0, 3.5))
    for _ in range(3):
        clock.passes(NEWS_SECONDS)
        news.tend()
    assert facts == [IndexVerified({"missing": 2}, 100, 3.5, 1_700_000_000.0)]
