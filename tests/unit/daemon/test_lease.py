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


@pytest.fixture
def clock() -> Time:
    return Time()


class Renewer:
    """Counts renewals and answers what the test has set."""

    def __init__(self) -> None:
        self.answer: bool | Exception = True
        self.asked = 0

    def renew(self, token: object) -> bool:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def renewer() -> Renewer:
    return Renewer()


@pytest.fixture
def facts() -> list[Fact]:
    return []


@pytest.fixture
def leases(renewer: Renewer, facts: list[Fact], clock: Time) -> Leases:
    return Leases(  # only renews
        cast(EventStore, renewer),
        facts.append,
        clock,
        lease_seconds=30.0,
        heartbeat_seconds=10.0,
        max_processing_seconds=100.0,
    )


def a_batch() -> Claimed:
    events = MemoryEvents()
    events.queue.produce()
    order = ClaimOrder(an_event().id, 1, 1)
    return events.claim(order)


def test_a_lease_runs_from_the_asking_and_not_from_the_reply(leases: Leases, renewer: Renewer, clock: Time) -> None:
    asked_at = clock.now
    claimed = replace(a_batch(), asked_at=asked_at)
    clock.passes(40)
    with leases.holding(claimed) as holding:
        assert holding.remaining() == -10
        assert holding.age() == 40


def test_a_lease_is_renewed_once_a_quarter_of_it_is_gone(leases: Leases, renewer: Renewer, clock: Time) -> None:
    with leases.holding(a_batch()) as holding:
        clock.passes(7)
        leases.beat()
        assert renewer.asked == 0
        clock.passes(3)
        leases.beat()
        assert (renewer.asked, holding.remaining()) == (1, 30.0)
    clock.passes(20)
    leases.beat()
    assert renewer.asked == 1, "what is settled is not renewed"


def test_the_heartbeat_of_a_hung_batch_stops_at_max_processing(leases: Leases, renewer: Renewer, clock: Time) -> None:
    with leases.holding(a_batch()) as holding:
        for _ in range(30):
            clock.passes(10)
            leases.beat()
        assert renewer.asked == 10
        assert holding.remaining() < 0


def test_a_batch_past_half_of_max_processing_sends_nothing_more(leases: Leases, clock: Time) -> None:
    with leases.holding(a_batch()) as holding:
        clock.passes(50)
        assert not holding.half_spent()
        clock.passes(1)
        assert holding.half_spent()


def test_a_lease_that_is_gone_is_marked_and_not_asked_for_again(
    leases: Leases, renewer: Renewer, clock: Time, facts: list[Fact]
) -> None:
    renewer.answer = False
    with leases.holding(a_batch()) as holding:
        for _ in range(3):
            clock.passes(10)
            leases.beat()
        assert (holding.lost, renewer.asked) == (True, 1)
    assert {type(fact) for fact in facts} == {Beat}, "the settle says it, with what it finds"


def test_a_database_that_is_down_loses_no_lease_before_its_time(
    leases: Leases, renewer: Renewer, clock: Time, facts: list[Fact]
) -> None:
    renewer.answer = DatabaseDown("away")
    with leases.holding(a_batch()) as holding:
        clock.passes(10)
        leases.beat()
        assert not holding.lost
        assert holding.remaining() == 20
        renewer.answer = True
        leases.beat()
        assert holding.remaining() == 30
    assert [type(fact) for fact in facts] == [Beat, DatabaseLost, Beat]


def test_a_renewal_counts_from_when_it_was_asked_for_not_from_its_answer(
    leases: Leases, renewer: Renewer, clock: Time
) -> None:
    def slow(_: object) -> bool:
        clock.passes(8)
        return True

    renewer.renew = slow  # type: ignore[method-assign,assignment]
    with leases.holding(a_batch()) as holding:
        clock.passes(10)
        leases.beat()
        assert holding.remaining() == 22
