"""What a Kafka record is read as: an event byte for byte, or a refusal by its class."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.kafka import record
from outbox.policy.document import UNREADABLE, Naming
from outbox.policy.event import DELETE, REFRESH, UPSERT
from outbox.policy.outcome import FailureClass
from tests.fixtures.records import NOW, TOPIC, MadeRecord, a_record, uuid_of

NAMING = Naming(True, lambda _: "articles")
ID = ("id", str(uuid_of(3)).encode())


def test_a_record_is_an_event_with_its_own_version_and_its_bytes() -> None:
    payload = b'{"price": 1.10, "n": 12345678901234567890}'
    found = record.read(a_record(41, "a:b", version=7, value=payload, routing="r", traceparent="00-x"), NOW)
    event = found.event
    assert event.payload == payload
    assert (event.event_version, event.seq) == (7, 41), "the version is the event's, never the offset"
    assert (event.id, event.entity_type, event.entity_id, event.op) == (uuid_of(41), "article", "a:b", "upsert")
    assert (event.routing, event.traceparent, event.attempts, event.retried) == ("r", "00-x", 1, False)
    assert event.age_seconds == pytest.approx(1.0)
    assert found.occurred_at == pytest.approx(NOW - 1)


@pytest.mark.parametrize(
    ("behind", "transaction"), [((771,), 771), ((None,), None), (("x",), None), ((-1,), None), ((5, "db", {}), 5)]
)
def test_the_transaction_follows_the_known_fields_and_the_rest_is_left_to_later_releases(
    behind: tuple[Any, ...], transaction: int | None
) -> None:
    made = a_record(1, behind=behind)
    assert record.read(made, NOW).transaction == transaction
    assert record.read_all([made, a_record(2)], NOW) == [record.read(made, NOW), record.read(a_record(2), NOW)]


NO_ARRAY = "header event is not the array that describes an event"
NO_KEY = "the key is not entity_type:entity_id"


def with_event(text: str) -> MadeRecord:
    return replace(a_record(3), of_headers=(ID, ("event", text.encode())))


HUGE = b"{" + b" " * record.LARGEST_BYTES
UNREADABLES = {
    "no headers at all": (MadeRecord(3), "header id is missing"),
    "an event without id": (replace(a_record(3), of_headers=a_record(3).of_headers[1:]), "header id is missing"),
    "no version": (a_record(3, event_version=None), "event_version is missing"),
    "another key": (a_record(3, key=b"1"), NO_KEY),
    "no uuid": (a_record(3, id="17"), "id is not a uuid"),
    "a version beyond bigint": (a_record(3, version=2**63), "event_version is not a whole number"),
    "a payload that is not there": (a_record(3, value=None, has_payload=True), "the payload is missing"),
    "a zero byte": (a_record(3, "a\x00"), record.TOO_LONG),
    "a name without end": (a_record(3, "a" * 3000), record.TOO_LONG),
    "an event that is no JSON": (with_event("upsert"), NO_ARRAY),
    "an event that is an object": (with_event('{"op": "upsert"}'), NO_ARRAY),
    "a version that is text": (a_record(3, version="seven"), NO_ARRAY),
    "half a character": (with_event('["upsert", 1, "article", "\\ud800", null, 1, true, null]'), NO_ARRAY),
    "an event without end": (a_record(3, "a" * 20_000), record.TOO_LONG),
    "too large": (a_record(3, value=HUGE), "the value is too large"),
}


@pytest.mark.parametrize("name", UNREADABLES)
def test_what_is_no_event_says_why_by_its_class(name: str) -> None:
    made, why = UNREADABLES[name]
    event = record.read(made, NOW).event
    assert event.op == UNREADABLE + why
    assert (event.payload, event.payload_bytes) == (None, None)
    refusal = NAMING.refusal(event)
    assert refusal is not None
    assert refusal.failure_class is FailureClass.DETERMINISTIC
    assert why in refusal.error


def test_only_a_record_without_value_and_headers_is_a_tombstone_of_compaction() -> None:
    assert record.is_tombstone(MadeRecord(1, b"article:1", None))
    assert not record.is_tombstone(a_record(1, value=None))
    assert not record.is_tombstone(MadeRecord(1, b"article:1", b"{}"))


# What one record among usual ones may be: each kind is tried in every place of a batch.
ODD = [
    *(made for made, _ in UNREADABLES.values() if made.of_value is not HUGE),
    a_record(4, op=DELETE),
    a_record(4, op=REFRESH, value=None, event_version=None),
    a_record(4, op="not-a-real-op"),
    a_record(4, value=None, has_payload=None),
    a_record(4, value=b"", has_payload=True),
    a_record(4, version=-7),
    a_record(4, version=2**63 - 1),
    a_record(4, id="{" + str(uuid_of(4)) + "}"),
    a_record(4, id="z" * 32),
    a_record(4, occurred_at=None),
    a_record(4, routing="é" * 3000),
    a_record(4, traceparent="00-x", routing="r"),
]
USUAL = [a_record(n, str(n)) for n in range(5)]


@given(st.lists(st.sampled_from([*USUAL * 8, *ODD])))
def test_a_batch_is_read_as_each_of_its_records_is(batch: list[MadeRecord]) -> None:
    assert record.read_all(batch, NOW) == [record.read(each, NOW) for each in batch]


@pytest.mark.parametrize(
    ("op", "value", "is_foreign"), [(REFRESH, None, True), (UPSERT, b"{}", False), (DELETE, None, False)]
)
def test_a_record_of_another_database_is_foreign_only_where_it_must_be_looked_up(
    op: str, value: bytes | None, is_foreign: bool
) -> None:
    """An upsert with its payload and a delete say all themselves."""
    found = record.read(a_record(0, op=op, value=value, behind=(771, "there")), NOW)
    assert found.is_foreign("here") is is_foreign
    assert not found.is_foreign("there")
    older = record.read(a_record(0, op=op, value=value, behind=(771,)), NOW)
    assert not older.is_foreign("here"), "written by an older release"


@pytest.mark.parametrize(
    ("key", "headers", "told"),
    [
        (b"17", {}, ("events", "17", "refresh")),
        (b'"17"', {}, ("events", "17", "refresh")),
        (b"17", {"aggregatetype": b"author"}, ("author", "17", "refresh")),
        (b"", {}, UNREADABLE + "the key is not an id"),
        (b'"17', {}, UNREADABLE + "the key is not an id"),
        (b"x" * 3000, {}, UNREADABLE + record.TOO_LONG),
    ],
)
def test_a_record_of_the_outbox_router_is_a_refresh_of_its_aggregate(
    key: bytes, headers: dict[str, bytes], told: tuple[str, ...] | str
) -> None:
    event = record.read(MadeRecord(0, key, b'{"of": "no use"}', (ID, *headers.items())), NOW, routed=True).event
    assert (event.op if isinstance(told, str) else (event.entity_type, event.entity_id, event.op)) == told
    assert event.payload is None


@pytest.mark.parametrize(("at", "age"), [(int((NOW - 60) * 1e6), 60.0), (None, None), (-1, None), (1e300, None)])
def test_a_time_that_says_nothing_makes_an_event_old(at: float | None, age: float | None) -> None:
    event = record.read(a_record(0, occurred_at=at), NOW).event
    assert event.age_seconds < 0 if age is None else event.age_seconds == pytest.approx(age)


@pytest.mark.parametrize(
    "made",
    [
        a_record(0, op=REFRESH, value=None, event_version=None),
        a_record(0, value=None),
        a_record(0, value=None, has_payload=None),
        a_record(0, op=DELETE),
    ],
    ids=["a refresh, which needs no version", "no payload", "no value", "a delete, whatever its value"],
)
def test_an_event_without_a_payload(made: MadeRecord) -> None:
    event = record.read(made, NOW).event
    assert not event.op.startswith(UNREADABLE)
    assert (event.payload, event.payload_bytes) == (None, None)


def test_unreadable_records_of_one_cause_are_one_group_and_each_is_a_row_of_its_own() -> None:
    first, second = (record.read(MadeRecord(n), NOW).event for n in (1, 2))
    assert NAMING.refusal(first) == NAMING.refusal(second)
    assert first.id != second.id
    assert first.id == record.read(MadeRecord(1), NOW).event.id
    assert first.entity_id == f"kafka:{TOPIC}:0:1"


def test_the_usual_batch_is_read_over_columns_and_an_unusual_one_is_not() -> None:
    """Otherwise the test above would compare a function with itself."""
    usual = [a_record(n, str(n), op) for n, op in enumerate(("upsert", "delete", "upsert"))]
    assert record._columns(usual, NOW) == [record.read(each, NOW) for each in usual]
    assert record._columns([*usual, a_record(4, key=b"1")], NOW) is None


def test_a_record_of_the_outbox_router_without_an_id_is_no_event() -> None:
    assert record.read(MadeRecord(0, b"17"), NOW, routed=True).event.op == UNREADABLE + "header id is missing"
