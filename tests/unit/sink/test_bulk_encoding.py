"""The bytes of a bulk request, and the portions they go in."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.outcome import MISSING, Stale
from outbox.ports import BulkAction
from outbox.sink import bulk
from outbox.sink.bulk import Encoded, address, read

actions = st.builds(
    BulkAction,
    index=st.just("things"),
    id=st.text(min_size=1, max_size=20),
    version=st.integers(0, 2**63 - 1),
    routing=st.none() | st.text(max_size=10),
    body=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=30), max_size=3).map(orjson.dumps),
)


@given(st.lists(actions, min_size=1, max_size=20))
def test_every_line_is_json_and_says_what_the_action_says(batch: list[BulkAction]) -> None:
    lines = iter(Encoded(batch).body(0, len(batch)).split(b"\n"))
    for action in batch:
        ((word, meta),) = json.loads(next(lines)).items()
        assert word == ("delete" if action.body is None else "index")
        assert (meta["_id"], meta["version"], meta.get("routing")) == (action.id, action.version, action.routing)
        assert meta["version_type"] == "external_gte"
        if action.body is not None:
            assert next(lines) == action.body
    assert next(lines) == b""
    assert next(lines, None) is None


@pytest.mark.parametrize("text", [b'{\n"a":1}', b'{\r"a":1}', b'{"a":1}\r\n', b"\n\n{}\n"])
def test_raw_line_breaks_become_blanks(text: bytes) -> None:
    body = Encoded([BulkAction("things", "a", 1, None, text)]).body(0, 1)
    assert body.count(b"\n") == 2
    assert b"\r" not in body
    assert len(body.split(b"\n")[1]) == len(text)


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
