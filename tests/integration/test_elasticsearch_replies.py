"""Every row of the measured list of Elasticsearch's answers, sent through the sink beside a good neighbour."""

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from elasticsearch import Elasticsearch

from outbox.facts import Fact, Unclassified
from outbox.policy.outcome import MISSING, WRITTEN, Code, Failure, FailureClass, Outcome, Reason, Stale
from outbox.ports import BulkAction, WriteReport
from outbox.sink import bulk
from outbox.sink.elastic import ElasticSink
from outbox.sink.new_index import ElasticNewIndex
from tests.fixtures.sinks import elastic_sink
from tests.fixtures.waiting import eventually

GOOD = b'{"title":"good"}'
SECRET = "s3cr3t-value"
MAPPING: dict[str, Any] = {
    "properties": {
        "number": {"type": "integer"},
        "day": {"type": "date"},
        "word": {"type": "keyword"},
        "truth": {"type": "boolean"},
        "address": {"type": "ip"},
        "title": {"type": "text"},
    }
}


JSON = {"content-type": "application/json", "accept": "application/json"}


@pytest.fixture
def facts() -> list[Fact]:
    return []


@pytest.fixture
def sink(elastic_url: str, facts: list[Fact]) -> Iterator[ElasticSink]:
    with elastic_sink(elastic_url, facts.append) as sink:
        yield sink
    assert not [fact for fact in facts if isinstance(fact, Unclassified)], "every answer here is in the table"


@pytest.fixture
def mapped(es: Elasticsearch, index: str) -> str:
    es.indices.put_mapping(index=index, **MAPPING)
    return index


def put(index: str, name: str = "bad", version: int = 5, body: bytes = GOOD) -> BulkAction:
    return BulkAction(index, name, version, None, body)


def remove(index: str, name: str = "bad", version: int = 5) -> BulkAction:
    return BulkAction(index, name, version, None, None)


def write(sink: ElasticSink, *actions: BulkAction) -> list[Outcome]:
    report = sink.write(actions, 30.0)
    assert report.unreachable is None
    return list(report.outcomes)


def beside_a_neighbour(sink: ElasticSink, action: BulkAction) -> tuple[Outcome, Outcome]:
    left, outcome, right = write(sink, put(action.index, "left"), action, put(action.index, "right"))
    assert left == right
    return outcome, left


def test_a_delete_of_nothing_is_missing_and_leaves_a_tombstone_that_makes_older_writes_stale(
    sink: ElasticSink, index: str
) -> None:
    assert beside_a_neighbour(sink, remove(index, version=5)) == (MISSING, WRITTEN)
    assert write(sink, put(index, version=3)) == [Stale(5)]


def test_the_version_is_read_from_the_end_because_an_id_may_say_the_same_words(sink: ElasticSink, index: str) -> None:
    name = "current version [99] is higher than the one provided [1]"
    write(sink, put(index, name, version=7))
    assert write(sink, put(index, name, version=6)) == [Stale(7)]


def test_a_forgotten_delete_lets_an_older_document_come_back(sink: ElasticSink, es: Elasticsearch, index: str) -> None:
    """The reason for the check in PostgreSQL: this is what `index create` sets gc_deletes to an hour for."""
    es.indices.put_settings(index=index, settings={"index.gc_deletes": "100ms"})
    write(sink, remove(index, version=9))

    def back() -> bool:
        es.indices.refresh(index=index)
        return write(sink, put(index, version=3)) == [WRITTEN]

    eventually(back, what="the document came back")


class Refused(NamedTuple):
    remark: str
    body: bytes
    named: str = ""  # what the operator must find in the error


REFUSED = [
    Refused("text into an integer", b'{"number":"%b"}' % SECRET.encode(), "[number] of type [integer]"),
    Refused("text with quotes and brackets into an integer", b'{"number":"a\'b]\\"%b"}' % SECRET.encode(), "[number]"),
    Refused("bad date", b'{"day":"%b"}' % SECRET.encode(), "[day] of type [date]"),
    Refused("bad date with brackets", b'{"day":"x] with format [%b]"}' % SECRET.encode(), "[day]"),
    Refused("number too large for its type", b'{"number":3000000000}', "[number]"),
    Refused("no boolean", b'{"truth":"%b"}' % SECRET.encode(), "[truth] of type [boolean]"),
    Refused("no address", b'{"address":"%b"}' % SECRET.encode(), "[address] of type [ip]"),
    Refused("an object into a text", b'{"title":{"x":"%b"}}' % SECRET.encode(), "[title]"),
    Refused("keyword over 32,766 bytes", b'{"word":"%b"}' % (SECRET.encode() * 4000), "word"),
    Refused("depth over 20", b'{"a":' * 25 + b"1" + b"}" * 25, "depth"),
    Refused("over 1,000 fields", b"{" + b",".join(b'"f%d":1' % n for n in range(1100)) + b"}", "fields"),
    Refused("empty field name", b'{"":1}', "field name"),
    Refused("two dots in a field name", b'{"a..b":1}', ""),
    Refused("_id inside the body", b'{"_id":"x"}', "[_id]"),
    Refused("duplicate keys", b'{"title":"%b","title":"b"}' % SECRET.encode(), "title"),
    Refused("a number without end", b'{"number":1e400}', "[number]"),
    Refused("40 digits", b'{"number":%b}' % (b"1" * 40), "[number]"),
    Refused("a field that is both a number and an object", b'{"aa":1,"aa.b":2}', "aa"),
    Refused("broken JSON", b'{"title":"%b"' % SECRET.encode()),
    Refused("an array", b'["%b"]' % SECRET.encode()),
    Refused("a string", b'"%b"' % SECRET.encode()),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.remark)
def test_a_refused_document_fails_alone_and_its_error_names_the_field_and_no_value(
    sink: ElasticSink, mapped: str, case: Refused
) -> None:
    outcome = refused_alone(sink, put(mapped, body=case.body))
    assert (outcome.code, outcome.failure_class) == (Code.PAYLOAD_INVALID, FailureClass.DETERMINISTIC)
    assert case.named in outcome.error
    for told in (outcome.error, str(outcome.detail)):
        assert SECRET not in told
        assert "115, 51, 99" not in told, "the value as a list of bytes is the value too"
    assert len(outcome.error.encode()) <= 2048


def refused_alone(sink: ElasticSink, action: BulkAction) -> Failure:
    outcome, neighbour = beside_a_neighbour(sink, action)
    assert neighbour == WRITTEN
    assert isinstance(outcome, Failure)
    assert (outcome.reason, outcome.whole) == (Reason.ES_REJECTED_DOCUMENT, False)
    return outcome


@pytest.mark.parametrize(
    "more",
    [{"name": "x" * 513}, {"name": "é" * 257}, {"name": ""}, {"version": -1}],
    ids=["513 bytes", "257 letters of two bytes", "empty", "version"],
)
def test_an_id_or_version_that_elasticsearch_refuses_fails_alone(
    sink: ElasticSink, index: str, more: dict[str, Any]
) -> None:
    refused_alone(sink, put(index, **more))


@pytest.mark.parametrize("line", [b'{"put":{"_id":"x"}}', b'{"index":{"_id":"x","colour":"red"}}'])
def test_a_mistake_in_our_action_line_is_never_the_rows_fault(
    sink: ElasticSink, index: str, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    monkeypatch.setattr(bulk, "_line", lambda *_: line)
    outcome, neighbour = beside_a_neighbour(sink, put(index))
    assert outcome == neighbour
    assert_systemic(outcome, Reason.ES_CONFIG, whole=True)


def test_an_unknown_field_under_a_strict_mapping_fails_alone(sink: ElasticSink, es: Elasticsearch, mapped: str) -> None:
    es.indices.put_mapping(index=mapped, dynamic="strict")
    assert "[extra]" in refused_alone(sink, put(mapped, body=b'{"extra":"%b"}' % SECRET.encode())).error


def test_a_document_cannot_choose_its_own_class_by_quoting_a_systemic_reason(sink: ElasticSink, mapped: str) -> None:
    quoted = b'{"number":"no write index is defined for alias [x]","no write index is defined for alias":{"":1}}'
    refused_alone(sink, put(mapped, body=quoted))


def assert_systemic(outcome: Outcome, reason: Reason, *, whole: bool = False) -> None:
    assert isinstance(outcome, Failure)
    assert (outcome.reason, outcome.failure_class) == (reason, FailureClass.SYSTEMIC)
    assert outcome.whole is whole


def assert_target_refused(report: WriteReport, reason: Reason) -> None:
    assert report.unreachable is None, "the server answers: other targets go on"
    for outcome in report.outcomes:
        assert isinstance(outcome, Failure)
        assert (outcome.reason, outcome.failure_class) == (reason, FailureClass.SYSTEMIC)


def refused_target(sink: ElasticSink, target: str, reason: Reason) -> None:
    """Index and delete alike, and the probe agrees, so that the pause lasts as long as its cause."""
    assert_target_refused(sink.write([put(target), remove(target, "other")], 30.0), reason)
    found = sink.probe(target)
    assert found is not None
    assert found.reason is reason


def accepted_again(sink: ElasticSink, target: str) -> None:
    assert sink.probe(target) is None
    assert write(sink, put(target, "after")) == [WRITTEN]


def test_an_alias_that_became_an_index_is_missing_until_it_is_checked_again(
    sink: ElasticSink, es: Elasticsearch, index: str, absent_index: str
) -> None:
    es.indices.put_alias(index=index, name=absent_index)
    assert write(sink, put(absent_index)) == [WRITTEN]
    es.indices.delete_alias(index=index, name=absent_index)
    es.indices.create(index=absent_index)
    outcome, neighbour = beside_a_neighbour(sink, put(absent_index))
    assert_systemic(outcome, Reason.ES_INDEX_MISSING)
    assert outcome == neighbour
    accepted_again(sink, absent_index)


def test_deletes_alone_never_create_the_index_of_an_alias_that_is_gone(
    elastic_url: str, es: Elasticsearch, index: str, absent_index: str
) -> None:
    """Elasticsearch would: an external version makes a delete create the index, `require_alias` or not (measured)."""
    now = [0.0]
    with elastic_sink(elastic_url, clock=lambda: now[0]) as sink:
        es.indices.put_alias(index=index, name=absent_index)
        assert write(sink, put(absent_index)) == [WRITTEN]
        es.indices.delete_alias(index=index, name=absent_index)
        now[0] += 10
        assert_target_refused(sink.write([remove(absent_index)], 30.0), Reason.ES_INDEX_MISSING)
    assert not es.indices.exists(index=absent_index)


def test_a_missing_index_without_a_template_is_created_as_in_the_guides_labs(
    sink: ElasticSink, es: Elasticsearch, absent_index: str
) -> None:
    assert sink.probe(absent_index) is None, "Elasticsearch may create it: nothing to wait for"
    assert beside_a_neighbour(sink, put(absent_index)) == (WRITTEN, WRITTEN)
    assert es.indices.exists(index=absent_index)


def test_a_missing_index_under_our_template_is_missing_for_deletes_too_and_found_when_made(
    sink: ElasticSink, es: Elasticsearch, absent_index: str
) -> None:
    guard = sink.elastic.required().template({"index_patterns": [absent_index], "priority": 599})
    es.perform_request("PUT", f"/_index_template/{absent_index}", body=guard, headers=JSON)
    refused_target(sink, absent_index, Reason.ES_INDEX_MISSING)
    new = ElasticNewIndex(sink.elastic)
    assert not new.exists(absent_index)
    new.create(absent_index, {}, {})
    assert new.exists(absent_index)
    accepted_again(sink, absent_index)
    new.remove(absent_index)


def test_an_upper_case_name_is_our_configuration(sink: ElasticSink) -> None:
    assert_target_refused(sink.write([put(f"UPPER-{uuid.uuid4().hex}")], 30.0), Reason.ES_CONFIG)


def test_an_alias_without_a_write_index_is_systemic_although_it_is_a_400(
    sink: ElasticSink, es: Elasticsearch, index: str, absent_index: str
) -> None:
    second = f"{absent_index}-b"
    es.indices.create(index=second)
    for each in (index, second):
        es.indices.put_alias(index=each, name=absent_index)
    refused_target(sink, absent_index, Reason.ES_CONFIG)
    es.indices.put_alias(index=index, name=absent_index, is_write_index=True)
    accepted_again(sink, absent_index)


def test_a_closed_index_is_systemic_although_it_is_a_400(sink: ElasticSink, es: Elasticsearch, index: str) -> None:
    es.indices.close(index=index)
    refused_target(sink, index, Reason.ES_CONFIG)
    es.indices.open(index=index)
    accepted_again(sink, index)


@pytest.mark.parametrize("block", ["write", "read_only", "read_only_allow_delete"])
def test_a_block_is_systemic_whatever_its_status_and_for_deletes_too(
    sink: ElasticSink, es: Elasticsearch, index: str, block: str
) -> None:
    es.indices.put_settings(index=index, settings={f"index.blocks.{block}": True})
    try:
        refused_target(sink, index, Reason.ES_BLOCKED)
    finally:
        es.indices.put_settings(index=index, settings={f"index.blocks.{block}": None})
    accepted_again(sink, index)


@pytest.mark.slow
def test_a_document_over_the_servers_limit_is_too_large_however_the_server_shows_it(
    sink: ElasticSink, index: str
) -> None:
    """8.14 resets the connection while 101 MB are sent; 9.4 says 413. Three attempts are enough for either."""
    huge = b'{"title":"' + b"x" * (101 * 1024 * 1024) + b'"}'
    for _ in range(3):
        outcome, neighbour = beside_a_neighbour(sink, put(index, body=huge))
        assert neighbour == WRITTEN
        assert isinstance(outcome, Failure)
        if outcome.reason is Reason.TOO_LARGE:
            break
        assert (outcome.reason, outcome.whole) == (Reason.CONNECT, False)
    assert isinstance(outcome, Failure)
    assert (outcome.reason, outcome.code) == (Reason.TOO_LARGE, Code.PAYLOAD_INVALID)
