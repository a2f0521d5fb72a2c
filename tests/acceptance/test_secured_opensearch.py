"""What OpenSearch's security plugin lets a user do: the facts that the minimal role in docs/security.md stands on."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from elasticsearch import AuthorizationException, Elasticsearch

from outbox.policy.outcome import MISSING, WRITTEN, Failure, Outcome, Reason
from outbox.ports import BulkAction
from outbox.sink.elastic import ElasticSink
from tests.fixtures.processes import ROOT
from tests.fixtures.secured import documented
from tests.fixtures.secured_opensearch import API, SecuredOpenSearch
from tests.fixtures.sinks import elastic_sink
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.opensearch, pytest.mark.slow]
INDEX = "allowed"
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def the_documented_role(index: str) -> dict[str, Any]:
    return documented(PAGE.replace("NAME", index), "### OpenSearch users")


def write(client: Elasticsearch, index: str) -> dict[str, Any]:
    version = {"version": 3, "version_type": "external_gte"}
    operations: list[dict[str, Any]] = [
        {"index": {"_index": index, "_id": "1", **version}},
        {"n": 1},
        {"delete": {"_index": index, "_id": "2"}},
    ]
    return dict(client.bulk(operations=operations).body)


def test_a_user_writes_only_where_the_role_says(secured_opensearch: SecuredOpenSearch) -> None:
    for name in (INDEX, "other"):
        secured_opensearch.admin.indices.create(index=name)
    with secured_opensearch.as_user(secured_opensearch.user(the_documented_role(INDEX))) as client:
        assert write(client, INDEX)["errors"] is False
        # As with Elasticsearch, per item inside a reply of 200.
        refused = write(client, "other")["items"]
        assert [next(iter(item.values()))["status"] for item in refused] == [403, 403]
        assert client.indices.get_settings(index=INDEX)
        asks: list[Callable[[], object]] = [
            client.info,
            lambda: client.search(index=INDEX),
            lambda: client.indices.create(index="new"),
        ]
        for asked in asks:
            with pytest.raises(AuthorizationException):
                asked()


# The sink with such a user


def sink_of(secured: SecuredOpenSearch, user: tuple[str, str], **settings: Any) -> AbstractContextManager[ElasticSink]:
    name, password = user
    return elastic_sink(secured.url, username=name, password=password, ca_certs=secured.ca_certs, **settings)


def written(sink: ElasticSink, index: str) -> list[Outcome]:
    """Once it has answered at all: the first login of a user takes seconds where the machine is busy."""
    actions = [BulkAction(index, "1", 3, None, b'{"n":1}'), BulkAction(index, "2", 3, None, None)]

    def answered() -> list[Outcome]:
        found = list(sink.write(actions, 30.0).outcomes)
        return [] if Reason.TIMEOUT in reasons(found) else found

    return eventually(answered, what="an answer to a write")


def probed(sink: ElasticSink, index: str) -> Failure | None:
    def answered() -> list[Failure | None]:
        found = sink.probe(index)
        return [] if found is not None and found.reason is Reason.TIMEOUT else [found]

    return eventually(answered, what="an answer to a probe")[0]


def reasons(found: list[Outcome]) -> set[object]:
    return {outcome.reason if isinstance(outcome, Failure) else outcome for outcome in found}


def test_the_minimal_role_is_enough_and_a_right_that_is_missing_pauses_until_it_is_given(
    secured_opensearch: SecuredOpenSearch,
) -> None:
    index = "projected"
    secured_opensearch.admin.indices.create(index=index)
    role = the_documented_role(index)
    user = secured_opensearch.user(role)
    with sink_of(secured_opensearch, user, product="opensearch") as sink:
        assert written(sink, index) == [WRITTEN, MISSING]
        assert probed(sink, index) is None
        rights = role["index_permissions"][0]
        kept = [action for action in rights["allowed_actions"] if not action.startswith("indices:data/write/")]
        less = {**role, "index_permissions": [{**rights, "allowed_actions": kept}]}
        secured_opensearch.put(f"{API}/roles/{user[0]}", less)
        assert reasons(written(sink, index)) == {Reason.ES_AUTH}
        paused = probed(sink, index)
        assert paused is not None, "nobody tells a role what it may do here: the probe tries, and changes nothing"
        assert paused.reason is Reason.ES_AUTH
        secured_opensearch.put(f"{API}/roles/{user[0]}", role)
        assert probed(sink, index) is None
        assert reasons(written(sink, index)) == {WRITTEN, MISSING}
    assert not secured_opensearch.admin.exists(index=index, id="outbox-probe")


def test_a_user_that_may_not_ask_for_the_product_learns_what_to_set(secured_opensearch: SecuredOpenSearch) -> None:
    for user, named in (
        (secured_opensearch.user(the_documented_role(INDEX)), "ELASTIC_PRODUCT=opensearch"),
        (("nobody", "guess"), "401"),
    ):
        with sink_of(secured_opensearch, user) as sink:
            for failure in (*written(sink, INDEX), probed(sink, INDEX)):
                assert isinstance(failure, Failure)
                assert failure.reason is Reason.ES_AUTH
                assert named in failure.error


def test_a_key_for_a_security_plugin_that_has_none_is_named(secured_opensearch: SecuredOpenSearch) -> None:
    """It answers a key as it answers a wrong password: 401 and a text."""
    with elastic_sink(secured_opensearch.url, api_key="a2V5", ca_certs=secured_opensearch.ca_certs) as sink:
        for failure in (*written(sink, INDEX), probed(sink, INDEX)):
            assert isinstance(failure, Failure)
            assert failure.reason is Reason.ES_AUTH
            assert "ELASTIC_API_KEY, which OpenSearch knows from 3.7 on" in failure.error
