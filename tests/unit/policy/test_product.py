"""Which product a reply names, and what follows from it: the recorded replies of real servers, and what is refused."""

from typing import Any

import pytest

from outbox.policy.outcome import Failure, FailureClass, Reason
from outbox.policy.product import (
    Product,
    Server,
    identify,
)

ES_HEADER = {"x-elastic-product": "Elasticsearch"}
OS_HEADER = {"x-opensearch-version": "OpenSearch/3.6.0 (opensearch)"}
OS_LINE = "The OpenSearch Project: https://opensearch.org/"


def main(number: str, tagline: str = OS_LINE, **version: Any) -> dict[str, Any]:
    return {"cluster_name": "c", "version": {"number": number, **version}, "tagline": tagline}


def opensearch(number: str) -> dict[str, Any]:
    return main(number, distribution="opensearch")


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        (ES_HEADER, main("8.14.1", "You Know, for Search"), "Elasticsearch 8.14.1"),
        (ES_HEADER, b"<html>", "Elasticsearch"),
        ({}, opensearch("2.19.6"), "OpenSearch 2.19.6"),
        (OS_HEADER, opensearch("3.6.0"), "OpenSearch 3.6.0"),
        (OS_HEADER, {}, "OpenSearch 3.6.0"),
        ({}, main("7.10.2"), "OpenSearch"),
    ],
)
def test_a_server_is_known_by_its_header_its_distribution_or_its_tagline(
    headers: dict[str, str], body: object, expected: str
) -> None:
    assert str(identify(200, headers, body)) == expected


@pytest.mark.parametrize(
    ("status", "headers", "body", "reason", "named"),
    [
        (200, {}, {}, Reason.ES_CONFIG, "neither Elasticsearch nor OpenSearch"),
        (200, {}, main("7.10.2", "You Know, for Search"), Reason.ES_CONFIG, "Elasticsearch 7.10.2 is too old"),
        (200, ES_HEADER, main("7.17.9", "You Know, for Search"), Reason.ES_CONFIG, "Elasticsearch 7.17.9 is too old"),
        (200, {}, main("8.14.1", "You Know, for Search"), Reason.ES_CONFIG, "Configure the proxy to pass that header"),
        (200, {}, opensearch("2.3.0"), Reason.ES_CONFIG, "OpenSearch 2.3.0 is too old"),
        (404, {"server": "aoss-amazon"}, b"", Reason.ES_CONFIG, "OpenSearch Serverless"),
        (401, {"content-type": "text/plain"}, b"Unauthorized", Reason.ES_AUTH, "the credentials are not accepted"),
        (403, {}, {"error": {"type": "security_exception"}}, Reason.ES_AUTH, "ELASTIC_PRODUCT=opensearch"),
        (503, {}, b"OpenSearch Security not initialized.", Reason.ES_CONFIG, "run securityadmin once"),
        (503, {}, b"<html>no backend</html>", Reason.ES_5XX, "no answer now"),
        (429, {}, b"", Reason.ES_429, "too many requests"),
    ],
)
def test_what_is_not_known_is_named_with_its_remedy_and_blames_no_document(
    status: int, headers: dict[str, str], body: object, reason: Reason, named: str
) -> None:
    found = identify(status, headers, body)
    assert isinstance(found, Failure)
    assert found.reason is reason
    assert found.whole
    assert named in found.error
    assert "***" not in found.error, "redaction must leave the remedy"
    temporary = reason in (Reason.ES_5XX, Reason.ES_429)
    assert found.failure_class is (FailureClass.TRANSIENT if temporary else FailureClass.SYSTEMIC)


def test_the_setting_decides_where_nobody_may_ask_and_is_not_believed_against_the_server() -> None:
    forbidden = {"error": {"type": "security_exception"}}
    assert identify(403, {}, forbidden, Product.OPENSEARCH) == Server(Product.OPENSEARCH)
    stripped = main("8.14.1", "You Know, for Search")
    assert identify(200, {}, stripped, Product.ELASTICSEARCH) == Server(Product.ELASTICSEARCH)
    old = identify(200, {}, main("7.10.2", "You Know, for Search"), Product.ELASTICSEARCH)
    assert isinstance(old, Failure)
    assert "too old" in old.error
    for told, headers, body in (
        (Product.OPENSEARCH, ES_HEADER, {}),
        (Product.ELASTICSEARCH, {}, opensearch("2.19.6")),
    ):
        found = identify(200, headers, body, told)
        assert isinstance(found, Failure)
        assert found.reason is Reason.ES_CONFIG
        assert f"ELASTIC_PRODUCT={told}" in found.error
    for status in (401, 503):
        assert isinstance(identify(status, {}, b"", Product.OPENSEARCH), Failure), "a setting is no credential"
