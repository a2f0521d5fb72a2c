"""The address of a bulk request, and its reply."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.outcome import MISSING, Stale
from outbox.ports import BulkAction
from outbox.sink import bulk
from outbox.sink.bulk import address, read


def test_the_address_quotes_the_index_and_waits_for_shards_less_than_we_wait() -> None:
    told = address("a/b?c", require_alias=True, deadline_seconds=30)
    assert told.startswith("/a%2Fb%3Fc/_bulk?")
    assert "timeout=3000ms" in told
    assert "require_alias=true" in told
    assert "require_alias" not in address("a", require_alias=False, deadline_seconds=0.0001)


BATCH = [BulkAction("things", "a", 1, None, b"{}"), BulkAction("things", "b", 1, None, None)]


def test_a_reply_is_read_item_by_item() -> None:
    conflict = {"type": "version_conflict_engine_exception", "reason": "current version [4]"}
    reply = {"errors": True, "items": [{"index": {"status": 409, "error": conflict}}, {"delete": {"status": 404}}]}
    assert read(orjson.dumps(reply), BATCH) == [Stale(None), MISSING]


ITEMS: st.SearchStrategy[object] = st.sampled_from(
    [
        {"index": {"status": 201}},
        {"index": {"status": 200}},
        {"index": {"status": 409, "error": {"type": "version_conflict_engine_exception"}}},
        {"index": {"status": 201, "error": {"type": "odd"}}},
        {"delete": {"status": 200}},
        {"index": {}},
        None,
    ]
)


@given(st.lists(st.tuples(ITEMS, st.sampled_from([b"{}", b"{}", None])), max_size=3), st.integers(1, 3))
def test_a_reply_that_is_read_as_a_whole_says_the_same_as_item_by_item(
    pairs: list[tuple[object, bytes | None]], times: int
) -> None:
    items = [item for item, _ in pairs] * times
    actions = [BulkAction("i", str(n), n, None, body) for n, (_, body) in enumerate(pairs * times)]
    assert read(orjson.dumps({"items": items}), actions) == bulk._each(items, actions, None)
