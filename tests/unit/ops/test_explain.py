"""`outbox explain-error`: the same table that judges in earnest, for whatever piece of a reply a person has."""

import json

import pytest

from outbox.errors import UsageError
from outbox.ops.explain import explain_reply, explain_stored

REFUSED = {"type": "document_parsing_exception", "reason": "[1:5] failed to parse field [n] of type [long]"}
ITEM = {"index": {"_index": "i", "_id": "1", "status": 400, "error": REFUSED}}


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        ({"errors": True, "items": [ITEM]}, None, "es_rejected_document"),
        (ITEM, None, "es_rejected_document"),
        (REFUSED, 400, "es_rejected_document"),
        ({"error": {"type": "security_exception", "reason": "no"}, "status": 401}, None, "es_auth"),
        ({"error": {"type": "es_rejected_execution_exception", "reason": "full"}}, 429, "es_429"),
        ({"delete": {"status": 404, "result": "not_found"}}, None, ""),
        ({"index": {"status": 201, "result": "created"}}, None, ""),
    ],
)
def test_any_piece_of_a_reply_is_explained(reply: object, status: int | None, reason: str) -> None:
    (verdict,) = explain_reply(json.dumps(reply), status)
    assert verdict.reason == reason
    assert verdict.why
    assert verdict.what_happens


def test_every_item_of_a_bulk_reply_gets_its_verdict() -> None:
    verdicts = explain_reply(json.dumps({"items": [ITEM, {"index": {"status": 200}}]}))
    assert [v.outcome for v in verdicts] == ["failure", "written"]


@pytest.mark.parametrize("text", ["nonsense", "[1]", '{"type": "x"}', '{"index": 3}'])
def test_what_is_no_reply_is_refused_with_what_is_missing(text: str) -> None:
    with pytest.raises(UsageError):
        explain_reply(text)


def test_a_stored_failure_is_explained_by_its_cause_chain() -> None:
    detail = json.dumps({"status": 400, "rule": "document", "error": REFUSED}).encode()
    verdict = explain_stored("es_rejected_document", "text", "OUTBOX_PAYLOAD_INVALID", detail)
    assert (verdict.rule, verdict.failure_class) == ("document", "deterministic")


def test_a_failure_before_sending_is_explained_by_its_reason_alone() -> None:
    verdict = explain_stored("deterministic_exception", "Unknown outbox op: 'x'", "OUTBOX_PAYLOAD_UNSUPPORTED", None)
    assert verdict.failure_class == "deterministic"
    assert "before anything was sent" in verdict.why


def test_a_reason_from_before_the_adoption_is_not_made_up() -> None:
    assert "adopted" in explain_stored("their_own_reason", "text", None, None).why


def test_an_event_that_never_failed_has_nothing_to_explain() -> None:
    with pytest.raises(UsageError, match="no failure"):
        explain_stored(None, None, None, None)
