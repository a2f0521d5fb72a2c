"""`outbox explain-error`: the same table that judges in earnest, for whatever piece of a reply a person has."""

import json

import pytest

from outbox.errors import UsageError
from outbox.ops.explain import explain_reply

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


@pytest.mark.parametrize("text", ["nonsense", "[1]", '{"type": "x"}', '{"index": 3}'])
def test_what_is_no_reply_is_refused_with_what_is_missing(text: str) -> None:
    with pytest.raises(UsageError):
        explain_reply(text)
