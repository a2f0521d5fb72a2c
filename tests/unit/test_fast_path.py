"""Each function of the fast path gives the answer of the plain rule that it stands for, or none at all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from outbox import fast_path
from outbox.daemon.batch import Batch, Delivery, Portion, Rows, Verdicts
from outbox.fast_path import Sendable
from outbox.policy.backoff import Backoff
from outbox.policy.document import MAX_ID_BYTES, Address, Naming, Stack
from outbox.policy.entity_type import BY_VIEW, other_sort
from outbox.policy.event import Event
from outbox.policy.outcome import MISSING, WRITTEN, DeadReason, Failure, Outcome, Reason, Stale, Written
from outbox.policy.settle import DONE, Done, Failed, Judge, Released, RetryLater, RetryPolicy, Settlement
from outbox.ports import NewerDelete
from outbox.store import events as store_events
from tests.fixtures.events import an_event

# What may be wrong with one event among good ones: every kind of it is tried in every batch.
ODD: list[dict[str, Any]] = [
    {},
    {"entity_type": "a:b"},
    {"entity_type": ""},
    {"entity_type": "é" * 300},
    {"entity_type": "x" * 600},
    {"entity_id": ""},
    {"entity_id": "x" * 504},
    {"entity_id": "x" * 505},
    {"entity_id": "é" * 256},
    {"entity_id": "x" * 513},
    {"op": "delete"},
    {"op": "drop"},
    {"op": "refresh"},
    {"op": "refresh", "payload": None},
    {"payload": None},
    {"payload": b" {}"},
    {"payload": b"[]"},
    {"payload": b"null"},
    {"event_version": -1},
    {"routing": "a"},
    {"routing": "é" * 1025},
]
# Few of each, so that many batches are plain, and documents meet.
PLAIN_EVENTS = st.builds(
    lambda id, op, payload, routing: an_event(
        entity_id=id, op=op, payload=payload, payload_bytes=None if payload is None else len(payload), routing=routing
    ),
    st.sampled_from("abcdefgh"),
    st.sampled_from(["upsert", "upsert", "upsert", "refresh", "delete"]),
    st.sampled_from([b"{}", b"{}", b'{"a":"%b"}' % (b"x" * 900), None]),
    st.sampled_from([None, "a"]),
)
LOOKUPS = st.builds(
    lambda id, op, kind: an_event(entity_id=id, op=op, entity_type=kind, payload=None, payload_bytes=None),
    st.sampled_from("abcdefgh"),
    st.sampled_from(["upsert", "refresh", "refresh", "delete"]),
    st.just("article"),
)


def naming(composed: bool = True) -> Naming:
    return Naming(composed, lambda kind: f"index-{kind[:10]}")


def sendable(events: Sequence[Event]) -> Sendable:
    return fast_path.sort_out(naming(), events)[0]


def is_alone(events: Sequence[Event]) -> bool:
    return len({naming().address(event.entity_type, event.entity_id, event.routing) for event in events}) == len(events)


# Where the odd ones stand among the good ones, and how many they are.
@given(st.lists(st.booleans(), min_size=1, max_size=5), st.booleans())
def test_a_batch_is_sorted_out_as_its_events_one_by_one(is_odd: list[bool], composed: bool) -> None:
    where = naming(composed)
    for odd in ODD:
        events = [an_event(seq, **(odd if each else {})) for seq, each in enumerate(is_odd)]
        found, refused = fast_path.sort_out(where, events)
        assert found.addressed() == [
            (where.address(e.entity_type, e.entity_id, e.routing), e) for e in events if where.refusal(e) is None
        ]
        assert refused == [(e, failure) for e in events if (failure := where.refusal(e)) is not None]
        assert all(1 <= len(address.id.encode()) <= MAX_ID_BYTES for address, _ in found.addressed())


@given(st.lists(PLAIN_EVENTS | LOOKUPS, max_size=6))
def test_a_batch_is_in_the_view_when_each_of_its_events_is_looked_up_alone(events: list[Event]) -> None:
    found = sendable(events)
    each = all(other_sort(event, BY_VIEW) is None and event.routing is None for event in found.events)
    assert fast_path.is_lookup(found) == (each and is_alone(found.events))


OUTCOMES: list[Outcome] = [WRITTEN, Written(), MISSING, Stale(3), Failure(Reason.ES_429, "busy")]


# Of a delivery, all that may differ; a version that was drawn for it was refused only if one was drawn.
DELIVERIES = st.builds(
    lambda older, as_delete, tombstone, drawn, refused: Delivery(
        Stack(
            Address("i", "1", None),
            an_event(9),
            [an_event(seq) for seq in range(older)],
            viewed=drawn,
            refused=refused if drawn else 0,
        ),
        version=9,
        body=b"{}",
        as_delete=as_delete and drawn,
        tombstone=tombstone,
    ),
    st.sampled_from([0, 0, 2]),
    st.booleans(),
    st.sampled_from([None, None, NewerDelete(12, None)]),
    st.booleans(),
    st.sampled_from([0, 0, 1]),
)
JUDGE = Judge(RetryPolicy(3, Backoff(1.0, 60.0)), lambda failure: True, lambda: 0.0)


@given(DELIVERIES)
def test_a_plain_delivery_is_one_whose_event_alone_is_simply_done(delivery: Delivery) -> None:
    verdicts = JUDGE.accepted(delivery.stack, WRITTEN, delivery.sent())
    assert delivery.is_plain == (verdicts == [(delivery.stack.head, DONE)])


def settled(portion: Portion, outcomes: Sequence[Outcome]) -> tuple[dict[UUID, Settlement], Rows, Sequence[Outcome]]:
    """What a portion records of itself, while it is young, and what it leaves to the judge."""
    batch = mock.Mock(Batch, verdicts=Verdicts([]), too_old=lambda drawn: False)
    rest, others = portion.settle(outcomes, batch)
    return dict(batch.verdicts.settlements()), rest, others


@given(st.lists(st.tuples(DELIVERIES, st.just(WRITTEN) | st.sampled_from(OUTCOMES)), max_size=4))
def test_what_rows_record_by_themselves_is_what_the_judge_says_and_the_others_are_left(
    pairs: list[tuple[Delivery, Outcome]],
) -> None:
    pairs = [(replace(each, stack=replace(each.stack, head=an_event(n))), o) for n, (each, o) in enumerate(pairs)]
    recorded, rest, others = settled(Rows(each for each, _ in pairs), [outcome for _, outcome in pairs])
    left = list(zip(rest, others, strict=True))
    own = [(each, outcome) for each, outcome in pairs if (each, outcome) not in left]
    assert all(isinstance(outcome, Written) for _, outcome in own)
    expected = dict(verdict for each, _ in own for verdict in JUDGE.accepted(each.stack, WRITTEN, each.sent()))
    assert recorded == {event.id: settlement for event, settlement in expected.items()}
    assert all(not (each.is_plain and isinstance(outcome, Written)) for each, outcome in left)


FAILURES = st.builds(Failure, st.sampled_from([Reason.ES_429, Reason.CONNECT]), st.just("no"), whole=st.booleans())
SETTLEMENTS = st.one_of(
    st.builds(Done, st.sampled_from([None, "superseded"]), st.booleans(), st.sampled_from([None, 7])),
    st.builds(RetryLater, st.just(1.0), FAILURES),
    st.builds(Released, st.just("braked"), st.sampled_from([None, 1.0]), st.none() | FAILURES),
    st.builds(Failed, FAILURES, st.sampled_from(DeadReason)),
)


@given(SETTLEMENTS)
def test_a_settlement_needs_no_row_of_its_own_when_its_row_would_say_what_done_says(settlement: Settlement) -> None:
    """A row without one is done (`settle` in events.sql); tests/integration/test_settle.py compares both."""
    own, done = (store_events._verdict(UUID(int=1), each) for each in (settlement, DONE))
    assert store_events._is_plain(settlement) == (own == done)


MOST_BYTES = 2_000


def test_one_id_under_two_routings_is_two_documents_and_under_one_it_is_one() -> None:
    apart = [an_event(seq, entity_id="1", routing=routing) for seq, routing in ((1, "a"), (2, "b"))]
    together = [an_event(seq, entity_id="1", routing="a") for seq in (1, 2)]
    assert fast_path.from_payloads(sendable(apart), MOST_BYTES) is not None
    assert fast_path.from_payloads(sendable(together), MOST_BYTES) is None
