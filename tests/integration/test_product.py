"""Which product answers: what each bad case is called, that nothing is sent to it, and that no attempt is spent.

The cases that a real server cannot show by itself come from a scripted one.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from outbox.config import ElasticSettings
from outbox.errors import ElasticsearchDown
from outbox.policy.outcome import WRITTEN, Failure, FailureClass, Reason
from outbox.ports import BulkAction, Level
from outbox.reindex.scan import ElasticScan, PointInTimeLost
from outbox.sink.client import connect
from outbox.sink.elastic import ElasticSink
from outbox.sink.index import ElasticIndices, IndexExists
from outbox.sink.index_check import TargetCheck
from outbox.sink.new_index import ElasticNewIndex, MappingRefused
from outbox.sink.server_check import ElasticServerCheck
from tests.fixtures.scripted import Answer, Request, Script, answer, scripted
from tests.fixtures.sinks import elastic_sink, is_opensearch

ACTION = BulkAction("things", "a", 1, None, b"{}")
FINE = b'{"errors":false,"items":[{"index":{"status":201}}]}'
OTHER = "x-opensearch: yes\r\n"
SEEN = b'{"things":{"aliases":{},"settings":{}}}'


def about(number: str = "2.19.6", **version: str) -> bytes:
    told = {"cluster_name": "c", "version": {"number": number, **version}}
    return json.dumps({**told, "tagline": "The OpenSearch Project: https://opensearch.org/"}).encode()


def opensearch(main: bytes, metadata: bytes | None = None) -> Script:
    """The root page as given; all other pages as a server with an index `things` has them."""

    def other(request: Request) -> Answer:
        return main if request.path == "/" else metadata or answer(200, SEEN, headers="")

    return other


REAL = answer(200, about(distribution="opensearch"), headers="")
CASES = {
    "2.3": (answer(200, about("2.3.0", distribution="opensearch"), headers=""), "es_config", "OpenSearch 2.3.0 is too"),
    "serverless": (answer(404, headers="server: aoss-amazon\r\n"), "es_config", "OpenSearch Serverless"),
    "no right to ask": (
        answer(403, b'{"error":{"type":"security_exception","reason":"no permissions"}}', headers=""),
        "es_auth",
        "cluster:monitor/main",
    ),
    "not logged in": (answer(401, b"Unauthorized", headers="", kind="text/plain"), "es_auth", "ELASTIC_USERNAME"),
    "not initialised": (
        answer(503, b"OpenSearch Security not initialized.", headers="", kind="text/plain"),
        "es_config",
        "OpenSearch Security not initialized",
    ),
    "stripped": (
        answer(200, b'{"version":{"number":"8.14.1"},"tagline":"You Know, for Search"}', headers=""),
        "es_config",
        "Configure the proxy to pass that header",
    ),
    "7.10": (
        answer(200, b'{"version":{"number":"7.10.2"},"tagline":"You Know, for Search"}', headers=""),
        "es_config",
        "Elasticsearch 7.10.2 is too old",
    ),
    "unknown": (answer(200, b"{}", headers=""), "es_config", "neither Elasticsearch nor OpenSearch"),
    "a header": (answer(404, SEEN, headers=OTHER), "es_config", "neither Elasticsearch nor OpenSearch"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_written_to_is_named_gets_nothing_and_spends_no_attempt(case: str) -> None:
    main, reason, named = CASES[case]
    with scripted(lambda _: answer(200, FINE), opensearch(main)) as server, elastic_sink(server.url) as sink:
        found = [*sink.write([ACTION, ACTION], 5.0).outcomes, sink.probe("things")]
        assert {request.method for request in server.requests} <= {"GET", "HEAD"}
        check = ElasticServerCheck(sink.elastic, lambda _, id: id)
        told = check.server()
    for failure in found:
        assert isinstance(failure, Failure)
        assert failure.failure_class is FailureClass.SYSTEMIC, "a pause: rows are released without an attempt"
        assert failure.reason == reason
        assert named in failure.error
        assert "[***]" not in failure.error
    assert told.level is Level.BAD
    assert named in told.detail
    assert told.remedy


def test_a_product_that_changes_behind_the_address_is_named_and_waits_for_a_person() -> None:
    """OpenSearch refuses the content type of Elasticsearch."""
    moved = [False]
    refused = b'{"error":"Content-Type header [application/vnd.elasticsearch+x-ndjson] is not supported","status":406}'

    def bulk(_: Request) -> Answer:
        return answer(406, refused, headers="") if moved[0] else answer(200, FINE)

    def other(request: Request) -> Answer:
        if not moved[0]:
            return answer(200, SEEN)
        return REAL if request.path == "/" else answer(200, SEEN, headers="")

    with scripted(bulk, other) as server, elastic_sink(server.url) as sink:
        assert sink.write([ACTION], 5.0).outcomes == [WRITTEN]
        moved[0] = True
        for _ in range(2):
            (failure,) = sink.write([ACTION], 5.0).outcomes
            assert isinstance(failure, Failure)
            assert failure.failure_class is FailureClass.SYSTEMIC, "a pause: rows are released without an attempt"
            assert "OpenSearch 2.19.6 answers at ELASTIC_URL where Elasticsearch answered before" in failure.error
        moved[0] = False
        assert sink.write([ACTION], 5.0).outcomes == [WRITTEN]


LOST = "search_context_missing_exception"
PARTS: dict[str, Callable[[ElasticScan], object]] = {
    "a page": lambda scan: list(scan.scan("things")),
    "by search": lambda scan: scan.held("things", ["a"], routed=True),
}


@pytest.mark.parametrize("kind", [LOST, "node_not_connected_exception"])
@pytest.mark.parametrize("part", PARTS)
def test_a_shard_that_is_lost_in_the_middle_of_a_comparison_ends_it(part: str, kind: str) -> None:
    """It is a 200 in which its documents are missing."""
    shards = {"total": 3, "failed": 1, "failures": [{"shard": 1, "reason": {"type": kind, "reason": "gone"}}]}
    hits = {"total": {"value": 0}, "hits": [{"_id": "a", "_version": 1, "sort": [1]}]}
    partial_reply = json.dumps({"id": "pit", "count": 1, "hits": hits, "_shards": shards}).encode()

    def other(request: Request) -> Answer:
        return answer(200, b'{"id":"pit"}' if "_pit" in request.path else partial_reply)

    with scripted(lambda _: b"", other) as server:
        elastic = connect(ElasticSettings(url=server.url))
        expected = PointInTimeLost if kind == LOST else ElasticsearchDown
        with pytest.raises(expected, match="gone"):
            PARTS[part](ElasticScan(elastic))


UNCOUNTED = {
    "no right to count": answer(403, b'{"error":{"type":"security_exception","reason":"no"}}', headers=""),
    "a shard is down": answer(200, b'{"count":0,"_shards":{"total":2,"failed":1}}', headers=""),
    "no right to refresh": answer(200, b'{"count":0,"_shards":{"total":2,"failed":0}}', headers=""),
}


@pytest.mark.parametrize("case", UNCOUNTED)
def test_an_index_that_nobody_can_count_is_not_called_empty_and_not_deleted(case: str) -> None:
    counted = UNCOUNTED[case]
    settings = b'{"things":{"settings":{"index.blocks.write":"true","index.hidden":"true"},"aliases":{}}}'

    def other(request: Request) -> Answer:
        if request.path == "/":
            return REAL
        if "_refresh" in request.path:
            return answer(403, b"{}", headers="")
        return counted if "_count" in request.path else answer(200, settings, headers="")

    with scripted(lambda _: answer(200, FINE, headers=""), other) as server, elastic_sink(server.url) as sink:
        assert sink.write([ACTION], 5.0).outcomes == [WRITTEN]
        failure = sink.probe("things")
        assert failure is not None
        assert failure.reason is Reason.ES_INDEX_MISSING
        assert "empty as far as is known" in failure.error
        with pytest.raises(IndexExists, match="nobody says whether it is empty"):
            ElasticIndices(sink.elastic).create("things")
        assert ElasticNewIndex(sink.elastic).exists("things")
        assert "DELETE" not in {request.method for request in server.requests}


# On a real server, whichever the tests run on


@pytest.fixture
def sink(elastic_url: str) -> Iterator[ElasticSink]:
    with elastic_sink(elastic_url) as sink:
        yield sink


def test_every_document_of_three_shards_is_scanned_once(
    sink: ElasticSink, es: Elasticsearch, absent_index: str
) -> None:
    """Of both indexes of an alias. Sorted over all shards at once, OpenSearch 2.19 gave 2,943 of 3,000 (`_doc`) and 3.6
    2,970 (`_shard_doc`)."""
    for name in (absent_index, f"{absent_index}-b"):
        es.indices.create(index=name, settings={"number_of_shards": 3, "number_of_replicas": 0})
        es.indices.put_alias(index=name, name=f"{absent_index}-both")
        sink.write([BulkAction(name, f"{name}:{n}", 1, None, b"{}") for n in range(1500)], 30.0)
    scan = ElasticScan(sink.elastic)
    scan.refresh(f"{absent_index}-both")
    found = [held.id for page in scan.scan(f"{absent_index}-both", 97) for held in page]
    assert len(found) == len(set(found)) == 3000


@pytest.mark.parametrize("part", [{"filter": {"term": {"mine": True}}}, {"routing": "a"}], ids=["filter", "routing"])
def test_an_alias_is_scanned_as_it_is_searched(
    sink: ElasticSink, es: Elasticsearch, absent_index: str, part: dict[str, Any]
) -> None:
    """By its filter, and by its routing, which chooses shards."""
    alias = f"{absent_index}-some"
    mappings = {"properties": {"mine": {"type": "boolean"}}}
    settings = {"number_of_shards": 3, "number_of_replicas": 0}
    es.indices.create(index=absent_index, mappings=mappings, settings=settings)
    es.indices.put_alias(index=absent_index, name=alias, **part)
    bodies = [b'{"mine": true}', b'{"mine": false}']
    sink.write([BulkAction(absent_index, str(n), 1, None, bodies[n % 2]) for n in range(300)], 30.0)
    scan = ElasticScan(sink.elastic)
    scan.refresh(absent_index)
    found = [held.id for page in scan.scan(alias, 17) for held in page]
    searched = {hit["_id"] for hit in es.search(index=alias, size=1000, source=False)["hits"]["hits"]}
    assert 0 < len(searched) < 300
    assert len(found) == len(searched) == scan.count(alias)
    assert set(found) == searched


def test_a_write_cannot_fill_an_index_that_a_person_did_not_create(
    sink: ElasticSink, es: Elasticsearch, absent_index: str
) -> None:
    """Elasticsearch does not create it. OpenSearch does: the index stays empty and counts as missing, for the writer,
    for a rebuild and for `index create`, which replaces it."""
    indices, first = ElasticIndices(sink.elastic), f"{absent_index}-v1"
    indices.create(absent_index, settings={"number_of_replicas": 0})
    assert list(sink.write([BulkAction(absent_index, "a", 1, None, b"{}")], 30.0).outcomes) == [WRITTEN]
    es.indices.delete(index=first)
    for body in (b'{"guessed":1}', None):
        outcome = sink.write([BulkAction(first, "a", 1, None, body)], 30.0).outcomes[0]
        assert isinstance(outcome, Failure)
        assert outcome.reason is Reason.ES_INDEX_MISSING
    probed = sink.probe(first)
    assert probed is not None
    assert probed.reason is Reason.ES_INDEX_MISSING
    if is_opensearch(sink.elastic):
        assert f"`outbox index create {first}`, which replaces it" in probed.error
    (finding,) = TargetCheck(sink.elastic, sink.targets)._writable(first)
    assert (finding.level, finding.remedy) == (Level.BAD, f"Run `outbox index create {first}`.")
    assert not ElasticNewIndex(sink.elastic).exists(first)
    assert bool(es.indices.exists(index=first)) is is_opensearch(sink.elastic)
    indices.create(absent_index, settings={"number_of_replicas": 0})
    assert sink.probe(first) is None
    assert list(sink.write([BulkAction(first, "a", 1, None, b"{}")], 30.0).outcomes) == [WRITTEN]
    levels = {finding.name: finding.level for finding in TargetCheck(sink.elastic, sink.targets).check(absent_index)}
    assert levels["auto_create"] is Level.OK


@pytest.mark.parametrize("is_behind_alias", [True, False])
def test_an_index_that_a_person_filled_is_never_taken_for_one_that_a_write_created(
    sink: ElasticSink, es: Elasticsearch, absent_index: str, is_behind_alias: bool
) -> None:
    """Made by hand under our template it is born blocked and hidden on OpenSearch. Then it is filled, not refreshed,
    and blocked for some work."""
    indices, second = ElasticIndices(sink.elastic), f"{absent_index}-v2"
    indices.create(absent_index, settings={"number_of_replicas": 0, "refresh_interval": -1})
    es.indices.create(index=second, settings={"hidden": True})
    es.indices.put_settings(index=second, settings={"blocks.write": False})
    assert list(sink.write([BulkAction(second, "a", 1, None, b"{}")], 30.0).outcomes) == [WRITTEN]
    es.indices.delete(index=f"{absent_index}-v1")
    target = absent_index if is_behind_alias else second
    if is_behind_alias:
        es.indices.put_alias(index=second, name=absent_index)
    es.indices.put_settings(index=second, settings={"blocks.write": True})
    outcome = sink.write([BulkAction(target, "b", 1, None, b"{}")], 30.0).outcomes[0]
    for failure in (outcome, sink.probe(target)):
        assert isinstance(failure, Failure)
        assert failure.reason is Reason.ES_BLOCKED
    new_index = ElasticNewIndex(sink.elastic)
    assert new_index.exists(second)
    with pytest.raises(MappingRefused, match="resource_already_exists"):
        new_index.create(second, {}, {})
    if is_behind_alias:
        with pytest.raises(IndexExists):
            indices.create(absent_index)
    es.indices.refresh(index=second)
    assert es.count(index=second)["count"] == 1


BLOCK, HIDDEN = '"blocks":{"write":"true"}', '"hidden":"true"'
