"""Which rows are refused before anything is sent, and which document each of the others means."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.document import MAX_ID_BYTES, Naming
from outbox.policy.outcome import Code, Reason
from tests.fixtures.events import an_event

COMPOSED = Naming(composed=True, index_of=lambda kind: f"index-{kind}")
ALONE = Naming(composed=False, index_of=lambda _: "all")


@pytest.mark.parametrize(
    ("values", "code", "error"),
    [
        pytest.param(
            {"op": "not-a-real-op"}, Code.PAYLOAD_UNSUPPORTED, "ValueError: Unknown outbox op: 'not-a-real-op'"
        ),
        pytest.param({"op": "UPSERT"}, Code.PAYLOAD_UNSUPPORTED, "'UPSERT'", id="case matters"),
        pytest.param({"op": "a\n\x1b[31m"}, Code.PAYLOAD_UNSUPPORTED, r"'a\n\x1b[31m'", id="shown inert"),
        pytest.param({"event_version": -1}, Code.PRECONDITION_FAILED, "below 0"),
        pytest.param({"entity_id": ""}, Code.PRECONDITION_FAILED, "empty"),
        pytest.param({"entity_type": "a:b"}, Code.PRECONDITION_FAILED, "':'"),
        pytest.param({"entity_id": "x" * 505}, Code.PRECONDITION_FAILED, "513 bytes", id="with its type one too long"),
        pytest.param({"entity_id": "\u00e9" * 253}, Code.PRECONDITION_FAILED, "514 bytes", id="bytes, not characters"),
        pytest.param({"payload": b"[]"}, Code.PAYLOAD_INVALID, "not a JSON object"),
        pytest.param({"payload": b' "text"'}, Code.PAYLOAD_INVALID, "not a JSON object"),
        pytest.param({"payload": b"null"}, Code.PAYLOAD_INVALID, "not a JSON object", id="json null is not SQL null"),
    ],
)
def test_a_row_that_can_never_be_sent_is_refused_with_its_code(values: dict[str, Any], code: Code, error: str) -> None:
    failure = COMPOSED.refusal(an_event(**values))
    assert failure is not None
    assert (failure.reason, failure.code) == (Reason.DETERMINISTIC, code)
    assert error in failure.error
    assert failure.fingerprint


@given(st.text(max_size=200), st.text(max_size=400), st.booleans())
def test_no_id_that_passes_is_longer_than_elasticsearch_takes(kind: str, id: str, composed: bool) -> None:
    naming = COMPOSED if composed else ALONE
    event = an_event(entity_type=kind, entity_id=id)
    if naming.refusal(event) is None:
        assert 1 <= len(naming.address(event.entity_type, event.entity_id).id.encode()) <= MAX_ID_BYTES


@given(st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"])), st.text(), st.text(), st.text())
def test_two_entities_that_pass_never_share_a_composed_id(kind: str, id: str, other_kind: str, other_id: str) -> None:
    one, two = an_event(entity_type=kind, entity_id=id), an_event(entity_type=other_kind, entity_id=other_id)
    if COMPOSED.refusal(one) is None and COMPOSED.refusal(two) is None and (kind, id) != (other_kind, other_id):
        assert (
            COMPOSED.address(one.entity_type, one.entity_id, one.routing).id
            != COMPOSED.address(two.entity_type, two.entity_id, two.routing).id
        )


@pytest.mark.parametrize(
    "values",
    [
        {"payload": b"{}"},
        {"payload": b' \r\n\t {"a":1}'},
        {"payload": None, "payload_bytes": None},
        {"payload": None, "payload_bytes": 9_000_000},
        {"op": "delete"},
        {"op": "delete", "payload": b"[]"},
        {"entity_id": "x" * 504},
        {"entity_id": " "},
        {"entity_id": "../_all"},
        {"entity_id": 'a"\n\u2028'},
        {"event_version": 0},
        {"event_version": 2**63 - 1},
    ],
)
def test_all_other_rows_are_sent(values: dict[str, Any]) -> None:
    assert COMPOSED.refusal(an_event(**values)) is None
