"""The heartbeat: renews while the work moves, stops at max processing, and never speaks for a settle."""

from dataclasses import replace
from typing import cast

import pytest

from outbox.daemon.lease import Leases
from outbox.errors import DatabaseDown
from outbox.facts import Beat, DatabaseLost, Fact
from outbox.ports import Claimed, ClaimOrder, EventStore
from tests.fakes import MemoryEvents
from tests.fixtures.events import Time, an_event


class Bench:
    """A heartbeat over a store that only counts renewals, and answers what the test has set."""

    def __init__(self) -> None:
        self.clock, self.facts = Time(), list[Fact]()
        self.answer: bool | Exception = True
        self.asked = 0
        self.leases = Leases(
            cast(EventStore, self),
            self.facts.append,
            self.clock,
            lease_seconds=30.0,
            heartbeat_seconds=10.0,
            max_processing_seconds=100.0,
        )

    def renew(self, token: object) -> bool:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def beat(self, after: float) -> None:
        self.clock.passes(after)
        self.leases.beat()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def a_batch() -> Claimed:
    events = MemoryEvents()
    events.queue.produce()
    return events.claim(ClaimOrder(an_event().id, 1, 1))


def test_a_lease_runs_from_the_asking_and_not_from_the_reply(bench: Bench) -> None:
    claimed = replace(a_batch(), asked_at=bench.clock.now)
    bench.clock.passes(40)
    with bench.leases.holding(claimed) as holding:
        assert (holding.remaining(), holding.age()) == (-10, 40)


def test_a_lease_is_renewed_once_a_quarter_of_it_is_gone(bench: Bench) -> None:
    with bench.leases.holding(a_batch()) as holding:
        bench.beat(7)
        assert bench.asked == 0
        bench.beat(3)
        assert (bench.asked, holding.remaining()) == (1, 30.0)
    bench.beat(20)
    assert bench.asked == 1, "what is settled is not renewed"


def test_the_heartbeat_of_a_hung_batch_stops_at_max_processing(bench: Bench) -> None:
    with bench.leases.holding(a_batch()) as holding:
        for _ in range(30):
            bench.beat(10)
        assert bench.asked == 10
        assert holding.remaining() < 0


def test_a_database_that_is_down_loses_no_lease_before_its_time(bench: Bench) -> None:
    bench.answer = DatabaseDown("away")
    with bench.leases.holding(a_batch()) as holding:
        bench.beat(10)
        assert (holding.lost, holding.remaining()) == (False, 20)
        bench.answer = True
        bench.leases.beat()
        assert holding.remaining() == 30
    assert [type(fact) for fact in bench.facts] == [Beat, DatabaseLost, Beat]


def test_a_lease_that_is_gone_is_marked_and_not_asked_for_again(bench: Bench) -> None:
    bench.answer = False
    with bench.leases.holding(a_batch()) as holding:
        for _ in range(3):
            bench.beat(10)
        assert (holding.lost, bench.asked) == (True, 1)
    assert {type(fact) for fact in bench.facts} == {Beat}, "the settle says it, with what it finds"
