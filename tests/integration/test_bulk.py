"""What reaches the real Elasticsearch: the bytes that were given, in portions of bounded size, to the right shard."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from elasticsearch import Elasticsearch

from outbox.facts import BulkSent, Fact
from outbox.policy.document import Address
from outbox.policy.outcome import MISSING, WRITTEN, Failure, Reason
from outbox.policy.product import Server
from outbox.ports import BulkAction
from outbox.sink.documents import versions
from outbox.sink.elastic import ElasticSink
from tests.fixtures.sinks import elastic_sink, is_opensearch
from tests.fixtures.waiting import PATIENCE_SECONDS


@pytest.fixture
def facts() -> list[Fact]:
    return []


@pytest.fixture
def sink(elastic_url: str, facts: list[Fact]) -> Iterator[ElasticSink]:
    with elastic_sink(elastic_url, facts.append) as sink:
        yield sink


def raw_source(es: Elasticsearch, index: str, name: str) -> bytes:
    """The source as Elasticsearch stores it, not parsed on the way."""
    from urllib.request import urlopen

    url = es.transport.node_pool.get().base_url
    with urlopen(f"{url}/{index}/_source/{name}") as reply:
        return bytes(reply.read())


TRICKY = (
    '{"big":12345678901234567890,"price":1.10,"exponent":1E+2,"emoji":"🙂","line":"a\\nb",'
    '"injection":"\\n{\\"delete\\":{\\"_id\\":\\"victim\\"}}\\n","separator":"\u2028","nul":"\\u0000","slash":"\\/"}'
).encode()


def test_a_payload_arrives_byte_for_byte(sink: ElasticSink, es: Elasticsearch, index: str) -> None:
    es.indices.put_mapping(index=index, dynamic="false")
    sink.write([BulkAction(index, "victim", 1, None, b"{}")], 30.0)
    assert list(sink.write([BulkAction(index, "x", 1, None, TRICKY)], 30.0).outcomes) == [WRITTEN]
    assert raw_source(es, index, "x") == TRICKY
    assert es.exists(index=index, id="victim"), "a line break inside a string is text, not an action"


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a\nb", "../_all", "\u2028", "🙂", " ", "%41", '"}}\n{"delete":{"_id":"x"}}', "a" * 512]
)
def test_any_id_names_its_own_document(sink: ElasticSink, es: Elasticsearch, index: str, name: str) -> None:
    assert list(sink.write([BulkAction(index, name, 3, None, b'{"a":1}')], 30.0).outcomes) == [WRITTEN]
    assert es.mget(index=index, docs=[{"_id": name}])["docs"][0]["_version"] == 3


def test_routing_reaches_the_shard_and_a_delete_with_the_same_one_finds_its_document(
    sink: ElasticSink, es: Elasticsearch, absent_index: str
) -> None:
    es.indices.create(index=absent_index, settings={"number_of_shards": 5, "number_of_replicas": 0})
    names = [f"d{n}" for n in range(20)]
    written = sink.write([BulkAction(absent_index, name, 1, "here", b"{}") for name in names], 30.0)
    assert set(written.outcomes) == {WRITTEN}
    places = [Address(absent_index, name, "here") for name in names]
    assert versions(sink.elastic, places) == [1] * 20
    without = sink.write([BulkAction(absent_index, name, 2, None, None) for name in names], 30.0)
    assert MISSING in without.outcomes, "another shard does not have it"
    sink.write([BulkAction(absent_index, name, 3, "here", None) for name in names], 30.0)
    assert versions(sink.elastic, places) == [None] * 20


def test_a_batch_goes_in_portions_of_bounded_bytes_and_items(
    elastic_url: str, es: Elasticsearch, index: str, facts: list[Fact]
) -> None:
    actions = [BulkAction(index, f"d{n}", 1, None, b'{"t":"%b"}' % (b"x" * (n % 7 * 100))) for n in range(300)]
    with elastic_sink(elastic_url, facts.append, batch_bytes=10_000, batch_items=lambda: 40) as sink:
        assert set(sink.write(actions, 30.0).outcomes) == {WRITTEN}
    sent = [fact for fact in facts if isinstance(fact, BulkSent)]
    assert max(fact.size_bytes for fact in sent) <= 10_000
    assert max(fact.items["written"] for fact in sent) <= 40
    assert es.mget(index=index, ids=["d0", "d299"])["docs"][1]["found"]


def test_two_requests_that_bring_a_new_field_at_the_same_moment_are_both_written(sink: ElasticSink, index: str) -> None:
    """One with 1, one with 1.5: Elasticsearch makes one mapping and refuses the other request's document, which fits
    a moment later. Without the second try every pair (60 of 60) lost one document."""
    together = Barrier(2, timeout=PATIENCE_SECONDS)

    def lane(value: str) -> list[object]:
        outcomes: list[object] = []
        for field in range(10):
            together.wait()
            body = f'{{"field{field}":{value}}}'.encode()
            outcomes += sink.write([BulkAction(index, f"{value}-{field}", 1, None, body)], 30.0).outcomes
        return outcomes

    with ThreadPoolExecutor(2) as lanes:
        assert [set(outcomes) for outcomes in lanes.map(lane, ("1", "1.5"))] == [{WRITTEN}, {WRITTEN}]


def test_a_document_that_contradicts_itself_is_refused_after_a_second_try(
    sink: ElasticSink, index: str, facts: list[Fact]
) -> None:
    itself = BulkAction(index, "itself", 1, None, b'{"a":1,"a.b":2}')
    other, refused = sink.write([BulkAction(index, "other", 1, None, b"{}"), itself], 30.0).outcomes
    assert other == WRITTEN
    assert isinstance(refused, Failure)
    assert refused.reason is Reason.ES_REJECTED_DOCUMENT
    # OpenSearch, and Elasticsearch from 9 on, name the contradiction itself, which no other request can have caused.
    server = sink.elastic.server()
    once = is_opensearch(sink.elastic) or (isinstance(server, Server) and int(server.number.partition(".")[0]) >= 9)
    assert [sum(fact.items.values()) for fact in facts if isinstance(fact, BulkSent)] == ([2] if once else [2, 1])


def test_several_indices_in_one_batch_are_written_each_by_itself(
    sink: ElasticSink, es: Elasticsearch, index: str, absent_index: str, facts: list[Fact]
) -> None:
    es.indices.create(index=absent_index)
    actions = [BulkAction(index if n % 2 else absent_index, f"d{n}", 1, None, b"{}") for n in range(10)]
    assert list(sink.write(actions, 30.0).outcomes) == [WRITTEN] * 10
    assert {fact.target for fact in facts if isinstance(fact, BulkSent)} == {index, absent_index}
