"""What a Kafka record is read as: an event byte for byte, or a refusal by its class."""

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.kafka import record
from outbox.policy.document import UNREADABLE, Naming
from outbox.policy.event import DELETE, REFRESH
from outbox.policy.outcome import FailureClass
from tests.fixtures.records import NOW, TOPIC, MadeRecord, a_record, described, uuid_of, without

NAMING = Naming(True, lambda _: "articles")


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


def test_one_header_says_the_same_as_a_header_for_each_field() -> None:
    apart = a_record(41, "a:b", version=7, routing="r", traceparent="00-x", has_payload="true")
    assert record.read(described(apart), NOW) == record.read(apart, NOW)


def test_what_follows_the_known_fields_of_the_header_is_left_to_later_releases() -> None:
    made = described(a_record(1))
    longer = replace(made, of_headers=(made.of_headers[0], ("event", made.of_headers[1][1][:-1] + b', {"new": 1}]')))  # type: ignore[index]
    assert record.read_all([longer, made], NOW) == [record.read(longer, NOW), record.read(made, NOW)]
    assert record.read(longer, NOW) == record.read(made, NOW)


@pytest.mark.parametrize(
    ("behind", "transaction"), [(b", 771]", 771), (b", null]", None), (b', "x"]', None), (b", -1]", None), (b"]", None)]
)
def test_the_transaction_follows_the_known_fields(behind: bytes, transaction: int | None) -> None:
    made = described(a_record(1))
    event = (made.of_headers[1][1] or b"")[:-1] + behind
    found = replace(made, of_headers=(made.of_headers[0], ("event", event)))
    assert record.read(found, NOW).transaction == transaction
    assert record.read_all([found, found], NOW) == [record.read(found, NOW)] * 2
    assert record.read_all([found, made], NOW) == [record.read(found, NOW), record.read(made, NOW)]


def test_headers_of_null_columns_are_as_if_they_were_not_there() -> None:
    event = record.read(a_record(0, routing=None, traceparent=None, has_payload=None), NOW).event
    assert (event.routing, event.traceparent, event.payload) == (None, None, b'{"n": 1}')


@pytest.mark.parametrize(
    ("text", "age"),
    [
        (str(int((NOW - 60) * 1e6)), 60.0),
        ("2027-01-15T07:59:00Z", 60.0),
        ("2027-01-15T07:59:00.250000Z", 59.75),
        ("2027-01-15 07:59:00+00:00", 60.0),
        ("yesterday", None),
        ("9" * 30, None),
        ("9" * 400, None),
        ("9" * 5000, None),
        ("-1", None),
    ],
)
def test_the_time_of_an_event_is_read_in_both_forms(text: str, age: float | None) -> None:
    """A time that says nothing is below 0: then the event is checked as if it were old."""
    event = record.read(a_record(0, occurred_at=text), NOW).event
    assert event.age_seconds < 0 if age is None else event.age_seconds == pytest.approx(age)


def test_a_refresh_needs_neither_version_nor_payload() -> None:
    event = record.read(without(a_record(0, op=REFRESH, value=None), "event_version"), NOW).event
    assert (event.op, event.payload, event.payload_bytes) == (REFRESH, None, None)


@pytest.mark.parametrize("said", ["false", None])
def test_an_upsert_without_a_value_is_looked_up(said: str | None) -> None:
    event = record.read(a_record(0, value=None, has_payload=said), NOW).event
    assert event.payload_bytes is None


def test_a_delete_has_no_payload_whatever_its_value() -> None:
    event = record.read(a_record(0, op=DELETE), NOW).event
    assert (event.payload, event.payload_bytes) == (None, None)


NO_ARRAY = "header event is not the array that describes an event"


def with_event(text: str) -> MadeRecord:
    return replace(a_record(3), of_headers=(("id", str(uuid_of(3)).encode()), ("event", text.encode())))


HUGE = b"{" + b" " * record.LARGEST_BYTES
UNREADABLES = {
    "no headers at all": (MadeRecord(3), "header id is missing"),
    "a null event and nothing else": (MadeRecord(3, of_headers=(("event", None),)), "header id is missing"),
    "one header missing": (without(a_record(3), "op"), "header op is missing"),
    "no version": (without(a_record(3), "event_version"), "event_version is missing"),
    "a null header": (a_record(3, op=None), "a header is not UTF-8 text"),  # type: ignore[arg-type]
    "an envelope": (a_record(3, value=b"\x00\x00\x00\x00\x07{}"), "the value is in a schema registry's envelope"),
    "another key": (a_record(3, key=b"1"), "the key is not entity_type:entity_id"),
    "no key": (MadeRecord(3, None, b"{}", a_record(3).of_headers), "the key is not entity_type:entity_id"),
    "a key of another entity": (a_record(3, key=b"article:2"), "the key is not entity_type:entity_id"),
    "no uuid": (a_record(3, id="17"), "id is not a uuid"),
    "a version in words": (a_record(3, event_version="seven"), "event_version is not a whole number"),
    "a version beyond bigint": (a_record(3, event_version=str(2**63)), "event_version is not a whole number"),
    "a payload that is not there": (a_record(3, value=None, has_payload="true"), "the payload is missing"),
    "a zero byte": (a_record(3, "a\x00"), "a header is too long, or holds a zero byte"),
    "a zero byte in the routing": (a_record(3, routing="a\x00"), "a header is too long, or holds a zero byte"),
    "a name without end": (a_record(3, "a" * 3000), "a header is too long, or holds a zero byte"),
    "an event that is no JSON": (with_event("upsert"), NO_ARRAY),
    "an event that is an object": (with_event('{"op": "upsert"}'), NO_ARRAY),
    "an event that is short": (with_event('["upsert", 1, "article", "1"]'), NO_ARRAY),
    "a version that is text": (described(a_record(3, event_version="seven")), NO_ARRAY),
    "a version that is a fraction": (with_event('["upsert", 1.5, "article", "1", null, 1, true, null]'), NO_ARRAY),
    "a version that is true": (with_event('["upsert", true, "article", "1", null, 1, true, null]'), NO_ARRAY),
    "an id that is a number": (with_event('["upsert", 1, "article", 1, null, 1, true, null]'), NO_ARRAY),
    "half a character": (with_event('["upsert", 1, "article", "\\ud800", null, 1, true, null]'), NO_ARRAY),
    "an event without end": (described(a_record(3, "a" * 20_000)), "a header is too long, or holds a zero byte"),
    "one version missing": (described(without(a_record(3), "event_version")), "event_version is missing"),
    "an event without id": (without(described(a_record(3)), "id"), "header id is missing"),
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


def test_the_class_is_the_fingerprint_so_one_cause_is_one_group() -> None:
    refusals = [NAMING.refusal(record.read(a_record(n, key=b"1"), NOW).event) for n in (1, 2)]
    assert refusals[0] is not None
    assert refusals[0] == refusals[1]


def test_two_unreadable_records_are_two_rows_and_the_same_one_is_one() -> None:
    first, second = (record.read(MadeRecord(n), NOW).event for n in (1, 2))
    assert first.id != second.id
    assert first.id == record.read(MadeRecord(1), NOW).event.id
    assert isinstance(first.id, UUID)
    assert first.entity_id == f"kafka:{TOPIC}:0:1"


def test_only_a_record_without_value_and_headers_is_a_tombstone_of_compaction() -> None:
    assert record.is_tombstone(MadeRecord(1, b"article:1", None))
    assert not record.is_tombstone(a_record(1, value=None))
    assert not record.is_tombstone(MadeRecord(1, b"article:1", b"{}"))


# What one record among usual ones may be: each kind is tried in every place of a batch.
ODD = [
    *(made for made, _ in UNREADABLES.values() if made.of_value is not HUGE),
    a_record(4, op=DELETE),
    without(a_record(4, op=REFRESH, value=None), "event_version"),
    a_record(4, op="not-a-real-op"),
    a_record(4, value=None, has_payload=None),
    a_record(4, value=b"", has_payload="true"),
    a_record(4, has_payload="FALSE"),
    a_record(4, event_version="-7"),
    a_record(4, event_version=str(2**63 - 1)),
    a_record(4, event_version="\u0663"),
    a_record(4, id="{" + str(uuid_of(4)) + "}"),
    a_record(4, id=uuid_of(4).hex),
    a_record(4, id="z" * 32),
    a_record(4, occurred_at=None),
    a_record(4, occurred_at="yesterday"),
    a_record(4, occurred_at="9" * 400),
    a_record(4, routing="é" * 3000),
    a_record(4, traceparent="00-x", routing="r"),
    MadeRecord(4, b"article:\xff", b"{}", (*a_record(4).of_headers, ("entity_id", b"\xff"))),
]


USUAL = [described(a_record(n, str(n), has_payload="true")) for n in range(5)]


@given(st.lists(st.sampled_from([*USUAL * 8, *ODD, *map(described, ODD)])))
def test_a_batch_is_read_as_each_of_its_records_is(batch: list[MadeRecord]) -> None:
    assert record.read_all(batch, NOW) == [record.read(each, NOW) for each in batch]


def test_the_usual_batch_is_read_over_columns_and_an_unusual_one_is_not() -> None:
    """Otherwise the test above would compare a function with itself."""
    usual = [described(a_record(n, str(n), op)) for n, op in enumerate(("upsert", "delete", "upsert"))]
    assert record._columns(usual, NOW) == [record.read(each, NOW) for each in usual]
    assert record._columns([*usual, described(a_record(4, key=b"1"))], NOW) is None


def test_a_record_of_another_database_is_foreign_only_where_it_must_be_looked_up() -> None:
    """An upsert with its payload and a delete say all themselves."""
    asked = {
        op: record.read(in_our_form(op, payload, "there"), NOW)
        for op, payload in [("refresh", None), ("upsert", b"{}"), ("delete", None)]
    }
    assert {op: found.is_foreign("here") for op, found in asked.items()} == {
        "refresh": True,
        "upsert": False,
        "delete": False,
    }
    assert not any(found.is_foreign("there") for found in asked.values())
    assert not record.read(in_our_form("refresh", None, None), NOW).is_foreign("here"), "written by an older release"
    assert (
        record.foreign(in_our_form("refresh", None, "there")).event.op == UNREADABLE + "a refresh of another database"
    )


def in_our_form(op: str, payload: bytes | None, database: str | None) -> MadeRecord:
    event = [op, 4, "article", "17", None, 1763400000123456, payload is not None, None, 771]
    header = json.dumps(event if database is None else [*event, database]).encode()
    headers = (("id", b"6f0f5b0e-5c0e-5f43-9d0e-2f6b1c3f7a10"), ("event", header))
    return MadeRecord(0, b"article:17", payload, headers)


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
    id = ("id", b"6f0f5b0e-5c0e-5f43-9d0e-2f6b1c3f7a10")
    event = record.read(MadeRecord(0, key, b'{"of": "no use"}', (id, *headers.items())), NOW, routed=True).event
    assert (event.op if isinstance(told, str) else (event.entity_type, event.entity_id, event.op)) == told
    assert event.payload is None


def test_a_record_of_the_outbox_router_without_an_id_is_no_event() -> None:
    assert record.read(MadeRecord(0, b"17"), NOW, routed=True).event.op == UNREADABLE + "header id is missing"
