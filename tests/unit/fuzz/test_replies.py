"""Elasticsearch's replies, fuzzed: nothing raises, no row is done but by its own item's status, all can be stored."""

import json
from collections.abc import Sequence
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from outbox.policy.classify import Split, classify_request
from outbox.policy.outcome import WRITTEN, Failure, Missing, Outcome, Stale
from outbox.ports import BulkAction
from outbox.sink.bulk import read
from tests.unit.fuzz.texts import ERRORS, JSON, OBJECTS, STATUSES, TEXT

INDEXED, DELETED = BulkAction("i", "a", 1, None, b"{}"), BulkAction("i", "a", 1, None, None)
ACTIONS = st.lists(st.sampled_from([INDEXED, DELETED]), min_size=1, max_size=6)
ITEM = st.fixed_dictionaries({}, optional={"status": STATUSES | JSON, "error": ERRORS, "_version": JSON})
SLOT = st.fixed_dictionaries({}, optional={"index": ITEM | JSON, "delete": ITEM | JSON, "create": ITEM}) | JSON
REPLY = st.fixed_dictionaries({}, optional={"errors": JSON, "items": st.lists(SLOT, max_size=7) | JSON, "took": JSON})


def storable(outcome: Outcome) -> None:
    """Fits its columns: no NUL, no lone surrogate, within its size, and JSON that the settle can carry."""
    assert isinstance(outcome, (Failure, Missing, Stale)) or outcome is WRITTEN
    if isinstance(outcome, Failure):
        assert len(outcome.error.encode()) <= 2048
        assert "\x00" not in outcome.error
        assert outcome.fingerprint is not None
        assert len(outcome.fingerprint) == 16
        assert len(json.dumps(outcome.detail)) <= 20_000
        orjson.dumps({"error": outcome.error, "detail": outcome.detail})


def said_done(raw: bytes, place: int, word: str) -> bool:
    """The oracle: by a plain reading, the item in this place says that our action was done, and no error with it."""
    item = orjson.loads(raw)["items"][place][word]
    return item["status"] in (200, 201) and not isinstance(item["status"], bool) and not item.get("error")


def judge(raw: bytes, actions: Sequence[BulkAction]) -> None:
    outcomes = read(raw, actions)
    if isinstance(outcomes, Failure):
        assert outcomes.whole
        storable(outcomes)
        return
    assert len(outcomes) == len(actions)
    for place, (outcome, action) in enumerate(zip(outcomes, actions, strict=True)):
        storable(outcome)
        if outcome is WRITTEN:
            assert said_done(raw, place, "delete" if action.body is None else "index")


@given(st.binary(max_size=400), ACTIONS)
def test_any_bytes_are_read_without_a_raise(raw: bytes, actions: list[BulkAction]) -> None:
    judge(raw, actions)


@given(REPLY, ACTIONS)
def test_a_row_is_done_only_by_its_own_items_status(reply: Any, actions: list[BulkAction]) -> None:
    judge(json.dumps(reply).encode(), actions)


@given(STATUSES, OBJECTS | JSON | st.binary() | st.fixed_dictionaries({"error": ERRORS}), st.dictionaries(TEXT, TEXT))
@example(500, {"error": {"type": "not_x_content_exception"}}, {})
def test_any_refusal_of_a_request_has_a_class_and_blames_documents_only_for_size_or_validation(
    status: int, body: object, headers: dict[str, str]
) -> None:
    verdict = classify_request(status, body, headers)
    failure = verdict.alone if isinstance(verdict, Split) else verdict
    storable(failure)
    if not isinstance(verdict, Split):
        assert failure.failure_class.value != "deterministic"
