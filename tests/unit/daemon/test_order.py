"""What a claim asks for: the floor, the share of retries, suspects; and which upserts are out of order."""

from math import inf
from unittest import mock
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.daemon.batch import TRUSTED_SECONDS, Batch, Bodies, Verdicts, known_since
from outbox.daemon.claiming import Floor, Orders
from outbox.daemon.lease import Holding
from outbox.policy.event import Event
from outbox.ports import Claimed, ClaimOrder
from tests.fixtures.events import Time, an_event


def a_batch(events: list[Event], clock: Time, since: float) -> Batch:
    claimed = Claimed(uuid4(), events, ClaimOrder(uuid4(), 1, 0))
    holding = Holding(claimed, 60.0, 600.0, clock)
    return Batch(claimed, events, holding, Bodies(mock.Mock(), mock.Mock(), clock), Verdicts(events), since)


def answer(orders: Orders, order: ClaimOrder, *seqs: int, took: float = 0.001, **values: object) -> None:
    orders.came_back(Claimed(order.token, [an_event(seq, **values) for seq in seqs], order), took)


# Floor


def test_the_floor_follows_the_claims_and_only_the_timer_goes_back_to_nothing() -> None:
    clock = Time()
    orders = Orders(clock, 2)
    first = orders.fresh(2)
    assert first.floor == 0
    answer(orders, first, 10, 11)
    assert orders.fresh(2).floor == 11
    clock.passes(1.9)
    assert orders.fresh(2).floor == 11
    clock.passes(0.2)
    assert [orders.fresh(2).floor for _ in range(3)] == [0, 11, 11], "one lane of the process, not all of them"


def test_a_seq_that_a_producer_wrote_itself_does_not_lift_the_floor_over_all_others() -> None:
    clock = Time()
    orders = Orders(clock, 3)
    answer(orders, orders.fresh(3), 5_000_000_000, 5_000_000_001, 2**63 - 1)
    assert orders.fresh(3).floor == 5_000_000_001
    answer(orders, orders.fresh(3), 2**62)
    assert orders.fresh(3).floor == 5_000_000_001
    answer(orders, orders.fresh(3), 5_000_000_009)
    assert orders.fresh(3).floor == 5_000_000_009


# Out of order


def test_what_was_tried_before_is_out_of_order_however_young() -> None:
    for values in ({"attempts": 2}, {"retried": True}, {"replay_count": 1}, {"abandoned_count": 1}):
        assert known_since([an_event(1), an_event(2, **values), an_event(3)], 100.0) == -inf, values


@given(st.lists(st.floats(0, 60), min_size=1, max_size=5), st.floats(0, 60))
def test_so_is_what_is_older_than_half_of_what_elasticsearch_remembers_by_default(
    ages: list[float], waited: float
) -> None:
    clock, events = Time(), [an_event(seq, age_seconds=age) for seq, age in enumerate(ages, 1)]
    claimed_at = clock()
    batch = a_batch(events, clock, known_since(events, claimed_at))
    clock.passes(waited)
    age = clock() - (claimed_at - max(ages))
    assert batch.too_old(drawn=False) == (age > TRUSTED_SECONDS)


def test_the_claim_from_nothing_comes_less_often_while_it_is_slow() -> None:
    floor = Floor(value=100)
    for _ in range(5):
        floor.advance(0, [100], 0.06)
    assert floor.interval == 10.0
    floor.advance(0, [100], 0.01)
    assert floor.interval == 2.0


def test_retries_take_half_of_a_batch_while_fresh_rows_wait_and_all_of_it_when_none_do() -> None:
    orders = Orders(Time(), 10)
    first = orders.fresh(10)
    assert first.retry_limit == 5
    answer(orders, first, 1)
    assert orders.fresh(10).retry_limit == 10
    answer(orders, orders.fresh(10), *range(10))
    assert orders.fresh(10).retry_limit == 5
    assert orders.fresh(1).retry_limit == 1


@pytest.mark.parametrize(("most", "asked"), [(500, [(1, 50), (2, 5), (3, 1)]), (3, [(1, 3), (2, 3), (3, 1)])])
def test_suspects_are_asked_for_fifty_five_and_one_at_a_time_and_never_more_than_the_setting(
    most: int, asked: list[tuple[int, int]]
) -> None:
    assert [(order.suspects, order.limit) for order in Orders(Time(), most).suspects()] == asked


def test_a_process_asks_for_suspects_once_per_second_until_it_finds_some() -> None:
    clock = Time()
    orders = Orders(clock, 500)
    found = orders.suspects()[0]
    assert orders.suspects() == []
    clock.passes(1)
    assert orders.suspects()
    answer(orders, found, 1)
    assert orders.suspects(), "there may be more"


def test_a_check_without_a_newer_delete_makes_it_young_again_unless_it_was_tried_before() -> None:
    clock = Time()
    for values, trusted in (({"age_seconds": 60.0}, True), ({"attempts": 2}, False)):
        events = [an_event(1, **values)]
        batch = a_batch(events, clock, known_since(events, clock()))
        assert batch.too_old(drawn=False)
        batch.checked(clock())
        assert batch.too_old(drawn=False) is not trusted
        clock.passes(TRUSTED_SECONDS + 1)
        assert batch.too_old(drawn=False)
