"""Which product a reply names, and what follows from it: the recorded replies of real servers, and what is refused."""

from typing import Any

import pytest

from outbox.policy.classify import classify_request
from outbox.policy.outcome import Failure, FailureClass, Reason
from outbox.policy.product import (
    ELASTICSEARCH,
    OPENSEARCH,
    Product,
    Server,
    by_header,
    changed,
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
        ({}, opensearch("2.4.0"), "OpenSearch 2.4.0"),
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
        (200, {}, main("6.8.0", "You Know, for Search"), Reason.ES_CONFIG, "Use Elasticsearch 8 or 9, or OpenSearch"),
        (200, ES_HEADER, main("7.17.9", "You Know, for Search"), Reason.ES_CONFIG, "Elasticsearch 7.17.9 is too old"),
        (200, {}, main("8.14.1", "You Know, for Search"), Reason.ES_CONFIG, "Configure the proxy to pass that header"),
        (200, {}, opensearch("1.3.20"), Reason.ES_CONFIG, "OpenSearch 1.3.20 is too old"),
        (200, {}, opensearch("2.3.0"), Reason.ES_CONFIG, "Use OpenSearch 2.4 or later"),
        (404, {"server": "aoss-amazon"}, b"", Reason.ES_CONFIG, "OpenSearch Serverless"),
        (401, {"content-type": "text/plain"}, b"Unauthorized", Reason.ES_AUTH, "the credentials are not accepted"),
        (403, {}, {"error": {"type": "security_exception"}}, Reason.ES_AUTH, "ELASTIC_PRODUCT=opensearch"),
        (503, {}, b"OpenSearch Security not initialized.", Reason.ES_CONFIG, "OpenSearch Security not initialized"),
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


@pytest.mark.parametrize(
    ("number", "accepted"), [("2.19.6", False), ("3.6.0", False), ("3.7.0", True), ("3.10.1", True)]
)
def test_a_key_is_accepted_by_opensearch_from_3_7_on_and_named_with_its_remedy_before(
    number: str, accepted: bool
) -> None:
    """By its documents: no server of 3.7 was there to ask."""
    assert identify(200, {}, opensearch(number)) == Server(Product.OPENSEARCH, number), "with a password"
    found = identify(200, {}, opensearch(number), by_key=True)
    if accepted:
        assert found == Server(Product.OPENSEARCH, number)
    else:
        assert isinstance(found, Failure)
        assert (found.reason, found.failure_class) == (Reason.ES_AUTH, FailureClass.SYSTEMIC)
        assert f"OpenSearch {number} has no API keys" in found.error
        assert "Use ELASTIC_USERNAME and ELASTIC_PASSWORD" in found.error


def test_a_key_is_for_every_elasticsearch_and_for_an_opensearch_that_does_not_say_its_version() -> None:
    assert isinstance(identify(200, ES_HEADER, main("8.14.1"), by_key=True), Server)
    assert isinstance(identify(200, {}, main("7.10.2"), by_key=True), Server)


def test_a_security_plugin_that_refuses_a_key_is_named() -> None:
    headers = {"www-authenticate": 'Basic realm="OpenSearch Security"'}
    for by_key, named in ((True, "It has API keys from 3.7 on"), (False, "Check ELASTIC_API_KEY")):
        found = identify(401, headers, b"Unauthorized", by_key=by_key)
        assert isinstance(found, Failure)
        assert found.reason is Reason.ES_AUTH
        assert named in found.error
        assert "***" not in found.error


# By AWS's documents, from the front of a domain.
AWS_REFUSALS = [
    ("Signature expired: 20150830T123600Z is now earlier than 20150830T124100Z (20150830T124600Z - 5 min.)", "clock"),
    ("Signature not yet current: 20150830T123600Z is still later than 20150830T123000Z", "clock"),
    ("The request signature we calculated does not match the signature you provided.\n'PUT\ncanary", "secret key"),
    ("Credential should be scoped to a valid region, not 'x'.", "ELASTIC_AWS_REGION"),
    ("The security token included in the request is expired", "renew them"),
    ("User: anonymous is not authorized to perform: es:ESHttpGet", "set ELASTIC_AWS_REGION"),
    ("User: arn:aws:iam::1:user/canary is not authorized to perform: es:ESHttpPut", "allow es:ESHttpGet"),
]


@pytest.mark.parametrize(("said", "named"), AWS_REFUSALS)
def test_a_refusal_of_aws_is_named_with_its_remedy_and_not_repeated(said: str, named: str) -> None:
    for body in ({"message": said}, {"Message": said}):
        for found in (identify(403, {}, body), classify_request(403, body, {})):
            assert isinstance(found, Failure)
            assert (found.reason, found.failure_class) == (Reason.ES_AUTH, FailureClass.SYSTEMIC)
            assert named in found.error
            assert "canary" not in str(found), "it quotes what was signed"
            assert "***" not in found.error


def test_a_document_or_a_proxy_cannot_speak_for_aws() -> None:
    for status, body in (
        (403, {"message": "no"}),
        (403, {"message": {"a": 1}}),
        (400, {"message": AWS_REFUSALS[0][0]}),
    ):
        found = classify_request(status, body, {})
        assert isinstance(found, Failure)
        assert "clock" not in found.error


def test_a_change_names_both_and_pauses() -> None:
    found = changed(Server(Product.ELASTICSEARCH, "8.14.1"), Server(Product.OPENSEARCH, "2.19.6"))
    assert found.failure_class is FailureClass.SYSTEMIC
    assert "OpenSearch 2.19.6 answers" in found.error
    assert "where Elasticsearch answered before" in found.error
    assert "restart" in found.error


def test_what_differs_goes_by_the_product_and_not_by_its_version() -> None:
    for number in ("", "2.19.6", "3.6.0"):
        assert Server(Product.OPENSEARCH, number).dialect is OPENSEARCH
        assert Server(Product.ELASTICSEARCH, number).dialect is ELASTICSEARCH


def test_a_version_that_is_not_supported_is_not_one_that_is_unknown() -> None:
    supported = {"elasticsearch": ("8.14.1", "9.4.3", ""), "opensearch": ("2.19.6", "3.6.0", "")}
    for name, numbers in supported.items():
        assert all(Server(Product(name), number).supported for number in numbers)
    assert not Server(Product.ELASTICSEARCH, "7.17.0").supported
    assert not Server(Product.OPENSEARCH, "4.0.0").supported


def test_a_reply_without_either_header_says_nothing() -> None:
    assert by_header({}) is None
    assert by_header({"x-opensearch-version": "strange"}) == Server(Product.OPENSEARCH)


def test_an_index_that_a_write_created_is_not_one_that_a_person_blocked() -> None:
    made = OPENSEARCH.template({"index_patterns": ["a"], "template": {"settings": {"index": {"gc_deletes": "1h"}}}})
    assert "allow_auto_create" not in made
    assert made["template"]["settings"]["index"] == {"gc_deletes": "1h"}
    auto = {name: str(value).lower() for name, value in made["template"]["settings"].items() if name != "index"}
    assert OPENSEARCH.is_auto_created(auto)
    assert not OPENSEARCH.is_auto_created({"index.blocks.write": "true", "index.hidden": "false"})
    assert not any(OPENSEARCH.for_create({}).values())
    assert ELASTICSEARCH.template({})["allow_auto_create"] is False
    assert ELASTICSEARCH.for_create({}) == {}
    assert not ELASTICSEARCH.is_auto_created(auto)


def test_a_login_that_may_not_write_learns_the_rights_by_the_names_of_its_product() -> None:
    assert "privileges index and delete" in ELASTICSEARCH.no_write
    assert "indices:data/write/" in OPENSEARCH.no_write
