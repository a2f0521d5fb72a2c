"""Coalescing: one stack per document, its newest event on top, and the older ones in order below."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.document import Address, coalesce
from outbox.policy.event import ORDER, Event
from tests.fixtures.events import an_event

# (document, version): few of each, so that they meet.
EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=40)


def addressed(pairs: list[tuple[int, int]]) -> list[tuple[Address, Event]]:
    return [
        (Address("i", str(doc), None), an_event(seq, entity_id=str(doc), event_version=version))
        for seq, (doc, version) in enumerate(pairs)
    ]


@given(EVENTS)
def test_every_event_is_in_exactly_one_stack_of_its_own_document(pairs: list[tuple[int, int]]) -> None:
    given_events = addressed(pairs)
    stacks = coalesce(given_events)
    kept = [(stack.address, event) for stack in stacks for event in (stack.head, *stack.older)]
    assert sorted(kept, key=lambda pair: pair[1].seq) == given_events


@given(EVENTS)
def test_the_head_is_the_newest_by_version_and_then_by_seq(pairs: list[tuple[int, int]]) -> None:
    for stack in coalesce(addressed(pairs)):
        assert all(ORDER(stack.head) > ORDER(event) for event in stack.older)


@given(EVENTS)
def test_each_head_that_is_dropped_makes_room_for_the_next_older_one(pairs: list[tuple[int, int]]) -> None:
    for stack in coalesce(addressed(pairs)):
        orders = [ORDER(stack.head)]
        while stack.drop_head():
            orders.append(ORDER(stack.head))
        assert orders == sorted(orders, reverse=True)
        assert not stack.older


@given(EVENTS)
def test_documents_keep_the_order_in_which_they_were_first_met(pairs: list[tuple[int, int]]) -> None:
    met = list(dict.fromkeys(str(doc) for doc, _ in pairs))
    assert [stack.address.id for stack in coalesce(addressed(pairs))] == met


def test_one_id_under_two_routings_is_two_documents() -> None:
    event = an_event()
    assert len(coalesce([(Address("i", "1", "a"), event), (Address("i", "1", "b"), event)])) == 2
