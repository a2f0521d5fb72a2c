"""Owns what the two filters accept and refuse; no SQL here."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from outbox.policy.inputs import (
    AuditFilter,
    BadRequest,
    read_audit_filter,
    read_event_filter,
    read_text,
    reason,
)
from outbox.web.routing import ONE_LINE

NOW = datetime(2026, 2, 3, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({"colour": "red"}, "colour", "unknown; choose from entity_type"),
        ({"ids": "not-a-uuid"}, "ids", "'not-a-uuid' is not a uuid"),
        ({"ids": [str(UUID(int=n)) for n in range(501)]}, "ids", "501 ids given, 500 at most"),
        ({"ids": True}, "ids", "give a list of ids"),  # found by fuzzing: it was a TypeError
        ({"entity_type": "a\x00b"}, "entity_type", "control characters"),
        ({"entity_id": "x" * 1025}, "entity_id", "longer than 1024 bytes"),
        ({"entity_id": {"$ne": 1}}, "entity_id", "give a text"),
        ({"error_code": "OOPS"}, "error_code", "none of OUTBOX_EXECUTION_FAILED"),
        ({"failure_type": "model_error"}, "failure_type", "network"),
        ({"fingerprint": "'; drop table"}, "fingerprint", "16 hex digits"),
        ({"since": "yesterday"}, "since", "ISO 8601"),
        ({"since": "1h", "until": "2h"}, "since", "before `until`"),
    ],
)
def test_what_is_invalid_is_refused_by_field(raw: dict[str, object], field: str, says: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_event_filter(raw, NOW)
    assert [name for name, _ in refused.value.problems] == [field]
    assert says in str(refused.value)


@pytest.mark.parametrize("character", ["\x00", "\n", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\u2066"])
def test_a_filter_an_act_and_the_api_refuse_the_same_characters(character: str) -> None:
    text = f"a{character}b"
    with pytest.raises(ValueError, match="control characters"):
        read_text(text)
    with pytest.raises(BadRequest):
        reason(text)
    assert not re.search(ONE_LINE, text)


def test_every_field_of_the_contract_is_read() -> None:
    one = uuid4()
    raw = {
        "entity_type": "block",
        "entity_id": 17,
        "error_reason": "es_rejected_document",
        "error_code": "OUTBOX_PAYLOAD_INVALID",
        "dead_reason": "non_retryable",
        "failure_type": "document",
        "fingerprint": "00FF00ff00ff00ff",
        "trace_id": "A" * 32,
        "ids": [str(one), one],
        "since": "2h",
        "until": "2026-02-03T12:00:00+01:00",
    }
    read = read_event_filter(raw, NOW)
    assert read.entity_id == "17"
    assert read.fingerprint == "00ff00ff00ff00ff"
    assert read.trace_id == "a" * 32
    assert read.ids == (one,)
    assert read.since == NOW - timedelta(hours=2)
    assert read.until == datetime(2026, 2, 3, 11, tzinfo=UTC)


def test_the_audit_filter_reads_its_own_fields() -> None:
    batch = uuid4()
    read = read_audit_filter({"action": "REPLAY_BATCH_ITEM", "actor": "alice", "batch_id": str(batch)}, NOW)
    assert read == AuditFilter(action="REPLAY_BATCH_ITEM", actor="alice", batch_id=batch)
    with pytest.raises(BadRequest, match="action: 'REPLAYED' is none of"):
        read_audit_filter({"action": "REPLAYED"}, NOW)
