"""Sorting out a whole batch says what the looks at single events say."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.document import MAX_ID_BYTES, Addressing
from outbox.policy.event import Event
from tests.fixtures.events import an_event

KINDS = st.sampled_from(["article", "a:b", "", "é" * 300, "x" * 600, "block"])
IDS = st.one_of(st.text(max_size=5), st.sampled_from(["1", "", "é", "x" * 504, "x" * 505, "x" * 512, "x" * 513]))
OPS = st.sampled_from(["upsert", "delete", "drop", ""])
PAYLOADS = st.sampled_from([None, b"{}", b'{"a": 1}', b" {}", b"[]", b"1", b"null"])
EVENTS = st.builds(
    lambda kind, id, op, payload, version: an_event(
        entity_type=kind, entity_id=id, op=op, payload=payload, event_version=version
    ),
    KINDS,
    IDS,
    OPS,
    PAYLOADS,
    st.integers(-1, 3),
)


@given(st.lists(EVENTS, max_size=20), st.booleans())
def test_a_batch_is_sorted_out_as_its_events_one_by_one(events: list[Event], composed: bool) -> None:
    addressing = Addressing(composed, lambda kind: f"index-{kind[:10]}")
    found, refused = addressing.sort_out(events)
    sendable = found.addressed()
    assert sendable == [(addressing.address(e), e) for e in events if addressing.refusal(e) is None]
    assert refused == [(e, failure) for e in events if (failure := addressing.refusal(e)) is not None]
    assert all(1 <= len(address.id.encode()) <= MAX_ID_BYTES for address, _ in sendable)


@given(st.lists(EVENTS, max_size=20), st.booleans())
def test_a_plain_batch_is_one_of_upserts_with_bodies_each_of_its_own_document(
    events: list[Event], composed: bool
) -> None:
    found, _ = Addressing(composed, lambda kind: f"index-{kind[:10]}").sort_out(events)
    addressed = found.addressed()
    plain = all(event.op == "upsert" and event.payload is not None for _, event in addressed) and len(
        {address for address, _ in addressed}
    ) == len(addressed)
    parts = [(address.index, address.id, e.event_version, address.routing, e.payload) for address, e in addressed]
    assert found.plain() == (parts if plain else None)


def test_one_id_under_two_routings_is_two_documents_and_under_one_it_is_one() -> None:
    addressing = Addressing(True, lambda _: "articles")
    apart = [an_event(seq, entity_id="1", routing=routing) for seq, routing in ((1, "a"), (2, "b"))]
    together = [an_event(seq, entity_id="1", routing="a") for seq in (1, 2)]
    assert addressing.sort_out(apart)[0].plain() is not None
    assert addressing.sort_out(together)[0].plain() is None
