"""The index that people create: protected from being guessed, remembering deletes, and reported when it is not."""

from collections.abc import Iterator

import pytest
from elasticsearch import Elasticsearch

from outbox.facts import Fact, SinkIdentified, Warned
from outbox.policy.outcome import WRITTEN, Failure, Reason
from outbox.ports import BulkAction, Finding, Level
from outbox.sink.elastic import ElasticSink
from outbox.sink.index import ElasticIndices, IndexExists
from outbox.sink.index_check import TargetCheck
from tests.fixtures.sinks import elastic_sink


@pytest.fixture
def sink(elastic_url: str) -> Iterator[ElasticSink]:
    with elastic_sink(elastic_url) as sink:
        yield sink


@pytest.fixture
def indices(sink: ElasticSink) -> ElasticIndices:
    return ElasticIndices(sink.elastic)


@pytest.fixture
def check(sink: ElasticSink) -> TargetCheck:
    return TargetCheck(sink.elastic, sink.targets, max_processing_seconds=600)


def levels(findings: list[Finding]) -> dict[str, Level]:
    return {finding.name: finding.level for finding in findings}


def test_create_makes_an_index_an_alias_and_a_template_that_forbids_guessing(
    indices: ElasticIndices, check: TargetCheck, sink: ElasticSink, es: Elasticsearch, absent_index: str
) -> None:
    made = indices.create(absent_index, {"properties": {"n": {"type": "integer"}}}, {"number_of_replicas": 0})
    assert made == (f"{absent_index}-v1", absent_index, absent_index)
    settings = es.indices.get_settings(index=made.index, flat_settings=True)[made.index]["settings"]
    assert settings["index.gc_deletes"] == "1h"
    assert settings["index.number_of_replicas"] == "0"
    assert es.indices.get_mapping(index=absent_index)[made.index]["mappings"]["properties"]["n"]["type"] == "integer"
    assert list(sink.write([BulkAction(absent_index, "a", 1, None, b"{}")], 30.0).outcomes) == [WRITTEN]
    assert set(levels(check.check(absent_index)).values()) == {Level.OK}
    assert all(finding.remedy for finding in check.check(absent_index) if finding.level is not Level.OK)


def test_what_was_created_never_comes_back_by_itself_after_it_was_deleted(
    indices: ElasticIndices, sink: ElasticSink, es: Elasticsearch, absent_index: str
) -> None:
    made = indices.create(absent_index)
    es.indices.delete(index=made.index)
    for body in (b"{}", None):
        outcome = sink.write([BulkAction(absent_index, "a", 1, None, body)], 30.0).outcomes[0]
        assert isinstance(outcome, Failure)
        assert outcome.reason is Reason.ES_INDEX_MISSING
    assert not es.indices.exists(index=f"{absent_index}*", allow_no_indices=False)


@pytest.mark.parametrize("suffix", ["", "-v1"])
def test_create_refuses_a_name_that_is_taken_and_changes_nothing(
    indices: ElasticIndices, es: Elasticsearch, absent_index: str, suffix: str
) -> None:
    es.indices.create(index=absent_index + suffix)
    with pytest.raises(IndexExists):
        indices.create(absent_index)
    assert not es.indices.exists_index_template(name=absent_index)


def test_a_plain_index_is_reported(check: TargetCheck, es: Elasticsearch, absent_index: str) -> None:
    es.indices.create(index=absent_index, settings={"index.translog.durability": "async"})
    found = levels(check.check(absent_index))
    warned = {name for name, level in found.items() if level is Level.WARN}
    assert warned == {"alias", "gc_deletes", "translog", "auto_create"}


def test_the_daemon_warns_at_start_about_forgotten_deletes_and_guessed_mappings(
    check: TargetCheck, indices: ElasticIndices, es: Elasticsearch, absent_index: str
) -> None:
    facts: list[Fact] = []
    es.indices.create(index=absent_index)
    assert check.warn([absent_index], facts.append)
    assert {fact.event for fact in facts if isinstance(fact, Warned)} == {"index.gc_deletes", "index.auto_create"}
    facts.clear()
    indices.create(f"{absent_index}-b")
    assert check.warn([f"{absent_index}-b"], facts.append)
    es.indices.delete_index_template(name=f"{absent_index}-b")
    assert [type(fact) for fact in facts] == [SinkIdentified]
