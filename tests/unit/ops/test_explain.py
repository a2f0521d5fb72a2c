"""`outbox explain-error`: the same table that judges in earnest, for whatever piece of a reply a person has."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from outbox.errors import UsageError
from outbox.ops.explain import explain_reply, explain_stored
from outbox.ops.stored_event import StoredEvent

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


def stored(reason: str | None = None, error: str | None = None, code: str | None = None, **more: object) -> StoredEvent:
    fields: dict[str, Any] = {**dict.fromkeys(StoredEvent.__dataclass_fields__), "op": "upsert", **more}
    return StoredEvent(**{**fields, "error_reason": reason, "error": error, "error_code": code})


def test_a_failed_refresh_says_when_it_was_read_and_that_a_replay_reads_again() -> None:
    event = stored("deterministic_exception", "no", op="refresh", last_attempt_at=datetime(2026, 2, 3, tzinfo=UTC))
    assert "read from the view at 2026-02-03 00:00:00+00:00, a replay reads it anew" in explain_stored(event, None).why


def test_a_stored_failure_is_explained_by_its_cause_chain() -> None:
    detail = json.dumps({"status": 400, "rule": "document", "error": REFUSED}).encode()
    verdict = explain_stored(stored("es_rejected_document", "text", "OUTBOX_PAYLOAD_INVALID"), detail)
    assert (verdict.rule, verdict.failure_class) == ("document", "deterministic")


def test_a_failure_before_sending_is_explained_by_its_reason_alone() -> None:
    event = stored("deterministic_exception", "Unknown outbox op: 'x'", "OUTBOX_PAYLOAD_UNSUPPORTED")
    verdict = explain_stored(event, None)
    assert verdict.failure_class == "deterministic"
    assert "before anything was sent" in verdict.why


def test_a_reason_from_before_the_adoption_is_not_made_up() -> None:
    assert "adopted" in explain_stored(stored("their_own_reason", "text"), None).why
