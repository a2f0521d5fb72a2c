"""The NDJSON of a bulk request, fuzzed: a strict parser like Elasticsearch's sees exactly the given actions."""

import json
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from outbox.ports import BulkAction
from outbox.sink.bulk import Encoded, address
from tests.unit.fuzz.texts import TEXT, laid_out

# PostgreSQL holds no lone surrogate, and two of them would be read as one sign.
NAMES = TEXT.map(lambda text: text.encode("utf-8", "replace").decode())
IDS = NAMES.filter(bool)
ACTIONS = st.lists(
    st.builds(BulkAction, st.just("i"), IDS, st.integers(0, 2**63 - 1), st.none() | NAMES, st.none() | laid_out()),
    max_size=6,
)


class Seen(NamedTuple):
    word: str
    about: dict[str, Any]
    body: bytes | None


def strictly(request: bytes) -> list[Seen]:
    """As Elasticsearch reads it: every line ends at \\n; an index action is followed by its source, a delete is not."""
    assert request.endswith(b"\n") or request == b""
    lines = request.split(b"\n")[:-1]
    seen: list[Seen] = []
    place = 0
    while place < len(lines):
        action = json.loads(lines[place])
        ((word, about),) = action.items()
        assert word in ("index", "delete")
        body = lines[place + 1] if word == "index" else None
        seen.append(Seen(word, about, body))
        place += 2 if word == "index" else 1
    return seen


def expected(action: BulkAction) -> dict[str, Any]:
    routing = {} if action.routing is None else {"routing": action.routing}
    return {"_id": action.id, **routing, "version": action.version, "version_type": "external_gte"}


@given(ACTIONS)
def test_exactly_these_actions_are_seen(actions: list[BulkAction]) -> None:
    seen = strictly(Encoded(actions).body(0, len(actions)))
    assert len(seen) == len(actions)
    for found, action in zip(seen, actions, strict=True):
        assert found.word == ("delete" if action.body is None else "index")
        assert found.about == expected(action)
        if action.body is not None:
            assert found.body is not None
            assert b"\r" not in found.body, "Elasticsearch takes \\r\\n for a line's end"
            assert json.loads(found.body) == json.loads(action.body)
            blanks = bytes.maketrans(b"\r\n", b"  ")
            assert found.body == action.body.translate(blanks), "not a byte but line breaks is changed"


@given(ACTIONS, st.integers(1, 3000), st.integers(1, 4))
def test_portions_hold_every_action_once_and_in_order(
    actions: list[BulkAction], most_bytes: int, most_items: int
) -> None:
    encoded = Encoded(actions)
    spans = list(encoded.portions(most_bytes, most_items))
    assert [place for start, stop in spans for place in range(start, stop)] == list(range(len(actions)))
    joined = b"".join(encoded.body(start, stop) for start, stop in spans)
    assert joined == encoded.body(0, len(actions))
    for start, stop in spans:
        assert stop - start <= most_items
        assert stop - start == 1 or len(encoded.body(start, stop)) <= most_bytes + 1


@given(TEXT, st.booleans(), st.floats(0, 1e6))
def test_no_name_of_an_index_leaves_its_place_in_the_address(index: str, alias: bool, seconds: float) -> None:
    try:
        made = address(index, require_alias=alias, deadline_seconds=seconds)
    except UnicodeEncodeError:
        return  # a lone surrogate: settings refuse such a name
    path, _, query = made.partition("?")
    assert path.startswith("/")
    assert path.endswith("/_bulk")
    assert path.count("/") == 2
    assert query.count("filter_path=") == 1
    assert not set(made) & set(" \r\n#\x00")
