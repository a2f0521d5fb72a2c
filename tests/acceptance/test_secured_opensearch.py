"""What OpenSearch's security plugin lets a user do: the facts that the minimal role in docs/security.md stands on."""

from typing import Any

import pytest
from elasticsearch import ApiError, AuthenticationException, AuthorizationException, Elasticsearch

from tests.fixtures.secured_opensearch import SecuredOpenSearch

pytestmark = [pytest.mark.opensearch, pytest.mark.slow]
INDEX = "allowed"
ROLE: dict[str, Any] = {
    "cluster_permissions": ["indices:data/write/bulk"],
    "index_permissions": [
        {
            "index_patterns": [INDEX],
            "allowed_actions": [
                "indices:data/write/bulk*",
                "indices:data/write/index",
                "indices:data/write/delete",
                "indices:admin/aliases/get",
                "indices:monitor/settings/get",
                "indices:admin/mapping/put",
            ],
        }
    ],
}


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
    with secured_opensearch.as_user(secured_opensearch.user(ROLE)) as client:
        assert write(client, INDEX)["errors"] is False
        # As with Elasticsearch, per item inside a reply of 200.
        refused = write(client, "other")["items"]
        assert [next(iter(item.values()))["status"] for item in refused] == [403, 403]
        assert client.indices.get_settings(index=INDEX)
        with pytest.raises(AuthorizationException):
            client.info()
        with pytest.raises(AuthorizationException):
            client.search(index=INDEX)
        with pytest.raises(AuthorizationException):
            client.indices.create(index="new")


def test_whoever_is_not_known_gets_text_instead_of_json(secured_opensearch: SecuredOpenSearch) -> None:
    with secured_opensearch.as_user(("nobody", "guess")) as client, pytest.raises(AuthenticationException) as refused:
        client.info()
    assert refused.value.meta.headers["content-type"].startswith("text/plain")


def test_there_are_no_api_keys_and_no_question_for_privileges(secured_opensearch: SecuredOpenSearch) -> None:
    for path in ("/_security/api_key", "/_security/user/_has_privileges"):
        with pytest.raises(ApiError) as refused:
            secured_opensearch.put(path, {})
        assert refused.value.status_code in (400, 405)
