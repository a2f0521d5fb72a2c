"""The table of Elasticsearch's answers, row by row; what the real server says is in tests/integration."""

from typing import Any

import pytest

from outbox.policy.classify import (
    Split,
    classify_item,
    classify_request,
)
from outbox.policy.outcome import MISSING, WRITTEN, Code, Failure, Reason, Stale

CONFLICT = "version conflict, current version [7] is higher than the one provided [6]"


def error(kind: str, reason: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, "reason": reason, **more}


def reason_of(status: int, body: object, op: str = "index") -> str:
    outcome = classify_item(op, {"status": status, "error": body})
    assert isinstance(outcome, Failure)
    return outcome.reason


@pytest.mark.parametrize(
    ("op", "status", "expected"), [("index", 200, WRITTEN), ("index", 201, WRITTEN), ("delete", 200, WRITTEN)]
)
def test_accepted_items(op: str, status: int, expected: object) -> None:
    assert classify_item(op, {"status": status}) == expected


def test_a_404_is_missing_only_for_a_delete_without_an_error() -> None:
    assert classify_item("delete", {"status": 404}) == MISSING
    assert reason_of(404, error("index_not_found_exception"), "delete") == Reason.ES_INDEX_MISSING
    assert isinstance(classify_item("index", {"status": 404}), Failure)


@pytest.mark.parametrize(
    ("text", "current"),
    [
        ("[a]: version conflict, current version [5] is higher than the one provided [3]", 5),
        ("[a]: version conflict, current version [5] is higher or equal to the one provided [5]", 5),
        ("[current version [9] is higher than the one provided [1]]: " + CONFLICT, 7),
        ("something else", None),
    ],
)  # fmt: skip
def test_a_409_is_stale_and_tells_the_current_version_where_it_is_said(text: str, current: int | None) -> None:
    item = {"status": 409, "error": error("version_conflict_engine_exception", text)}
    assert classify_item("index", item) == Stale(current)
    assert classify_item("delete", {"status": 409}) == Stale(None)


ROWS = [
    (401, error("security_exception", "missing credentials"), Reason.ES_AUTH, "no key"),
    (403, error("security_exception", "action [x] is unauthorized"), Reason.ES_AUTH, "a key without the right"),
    (403, error("cluster_block_exception", "FORBIDDEN/8/index write"), Reason.ES_BLOCKED, "a person's block"),
    (429, error("cluster_block_exception", "TOO_MANY_REQUESTS/12/"), Reason.ES_BLOCKED, "flood stage, no overload"),
    (503, error("cluster_block_exception", "SERVICE_UNAVAILABLE/2/no master"), Reason.ES_5XX, "no master"),
    (400, error("index_closed_exception"), Reason.ES_CONFIG, "a 400 that is no document"),
    (400, error("invalid_index_name_exception"), Reason.ES_CONFIG, "a 400 that is no document"),
    (400, error("illegal_argument_exception", "no write index is defined for alias [a]"), Reason.ES_CONFIG, "alias"),
    (400, error("illegal_argument_exception", "Validation Failed: 1: this action would add [2] shards"),
     Reason.ES_CONFIG, "shard limit, old name"),
    (400, error("validation_exception", "Validation Failed: 1: this action would add [2] shards"),
     Reason.ES_CONFIG, "shard limit"),
    (400, error("illegal_argument_exception", "pipeline with id [p] does not exist"), Reason.ES_CONFIG, "pipeline"),
    (400, error("illegal_argument_exception", "mapper [a] cannot be changed"), Reason.ES_REJECTED_DOCUMENT, "8.14"),
    (400, error("illegal_argument_exception", "mapper [a] cannot be changed from type [float] to [long]"),
     Reason.ES_REJECTED_DOCUMENT, "after a second try: another request may have made the mapping meanwhile"),
    (400, error("illegal_argument_exception", "mapper [no write index is defined for alias] cannot"),
     Reason.ES_REJECTED_DOCUMENT, "a field's name must not choose the class"),
    (400, error("mapper_parsing_exception", "failed"), Reason.ES_REJECTED_DOCUMENT, "before 8.8"),
    (400, error("document_parsing_exception", "failed", caused_by=error("security_exception")),
     Reason.ES_REJECTED_DOCUMENT, "the outermost known cause decides"),
    (400, error("strict_dynamic_mapping_exception"), Reason.ES_REJECTED_DOCUMENT, "strict"),
    (400, error("routing_missing_exception"), Reason.ES_REJECTED_DOCUMENT, "routing"),
    (500, error("not_x_content_exception"), Reason.ES_REJECTED_DOCUMENT, "a deterministic 500"),
    (429, error("es_rejected_execution_exception"), Reason.ES_429, "overload"),
    (429, error("es_rejected_execution_exception", "rejected execution of R on EsThreadPoolExecutor[x] (shutdown)"),
     Reason.ES_5XX, "a node that is being stopped is no overload"),
    (429, error("es_rejected_execution_exception", "rejected execution of [id[R on E[x] (shutdown)]] on E[x]"),
     Reason.ES_429, "a document's id must not choose the class"),
    (429, error("rejected_execution_exception", "rejected execution of coordinating operation [all_bytes=9]"),
     Reason.ES_429, "overload of OpenSearch"),
    (429, error("rejected_execution_exception", "rejected execution of R on ThreadPoolExecutor[x] (shutdown)"),
     Reason.ES_5XX, "a node of OpenSearch that is being stopped"),
    (503, error("cluster_manager_not_discovered_exception"), Reason.ES_5XX, "no cluster manager"),
    (503, error("not_cluster_manager_exception", "no longer cluster-manager"), Reason.ES_5XX, "another manager now"),
    (403, error("index_create_block_exception", "blocked by: [FORBIDDEN/10/cluster create-index blocked (api)];"),
     Reason.ES_BLOCKED, "OpenSearch creates no index while its disks are full"),
    (404, error("shard_not_found_exception", "no such shard"), Reason.ES_5XX, "another node has the primary now"),
    (429, error("circuit_breaking_exception"), Reason.ES_429, "breaker"),
    (500, error("remote_transport_exception", "x", caused_by=error("circuit_breaking_exception")),
     Reason.ES_429, "an unknown wrapper is looked into"),
    (429, error("document_parsing_exception", "x", caused_by=error("circuit_breaking_exception")),
     Reason.ES_429, "not the document's 400"),
    (503, error("unavailable_shards_exception"), Reason.ES_5XX, "shards"),
    (500, error("new_name_exception", "x", root_cause=[error("unavailable_shards_exception", "y")]),
     Reason.ES_5XX, "root_cause too"),
    (502, None, Reason.ES_5XX, "a proxy"),
    (500, None, Reason.ES_5XX, "a server without a body"),
    (408, None, Reason.TIMEOUT, "a proxy's patience"),
    (429, None, Reason.ES_429, "a proxy's limit"),
    (403, None, Reason.ES_AUTH, "a proxy's opinion"),
    (400, error("brand_new_exception", "x"), Reason.UNKNOWN, "unknown names fall to the safe side"),
    (500, error("null_pointer_exception", "x"), Reason.UNKNOWN, "unknown, and counted"),
    (418, None, Reason.UNKNOWN, "a teapot"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "expected", "remark"), ROWS, ids=[row[3] for row in ROWS])
def test_a_refused_item(status: int, body: object, expected: Reason, remark: str) -> None:
    assert reason_of(status, body) == expected, remark


def test_what_no_rule_knows_is_reported_and_what_one_knows_is_not() -> None:
    seen: list[tuple[int, str]] = []
    classify_item("index", {"status": 400, "error": error("brand_new_exception")}, lambda *x: seen.append(x))
    classify_item("index", {"status": 400, "error": error("document_parsing_exception")}, lambda *x: seen.append(x))
    classify_request(599, None, {}, lambda *x: seen.append(x))
    assert seen == [(400, "brand_new_exception"), (599, "none")]


@pytest.mark.parametrize("body", [None, "text", [], {"error": "no handler found"}, {"error": {}}, b"<html>", 5])
@pytest.mark.parametrize("status", [300, 400, 404, 405, 406, 415])
def test_a_refused_request_is_our_configuration_and_never_a_rows_fault(status: int, body: object) -> None:
    verdict = classify_request(status, body, {})
    assert isinstance(verdict, Failure)
    assert (verdict.reason, verdict.whole) == (Reason.ES_CONFIG, True)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (413, None, Reason.TOO_LARGE),
        (413, b"<html>", Reason.TOO_LARGE),
        (400, {"error": error("action_request_validation_exception", "id too long")}, Reason.ES_REJECTED_DOCUMENT),
    ],
)
def test_size_and_validation_are_searched_for_in_the_rows(status: int, body: object, reason: Reason) -> None:
    verdict = classify_request(status, body, {})
    assert isinstance(verdict, Split)
    assert (verdict.alone.reason, verdict.alone.code, verdict.alone.whole) == (reason, Code.PAYLOAD_INVALID, False)


def test_only_an_absent_index_or_cluster_makes_an_items_failure_one_of_the_whole() -> None:
    shards = classify_item("index", {"status": 503, "error": error("unavailable_shards_exception")})
    unled = classify_item("index", {"status": 503, "error": error("cluster_manager_not_discovered_exception")})
    assert isinstance(shards, Failure)
    assert isinstance(unled, Failure)
    assert (shards.whole, unled.whole) == (True, True)
    for kind in ("es_rejected_execution_exception", "rejected_execution_exception"):
        pressed = classify_item("index", {"status": 429, "error": error(kind)})
        assert isinstance(pressed, Failure)
        assert not pressed.whole
