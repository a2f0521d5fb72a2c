"""Two JSON texts that mean the same, and two that only seem to."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.lossless import read_exact as read
from outbox.policy.lossless import same_exact as same


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("1.10", "1.1", True),
        ("0.1", "0.10000000000000001", False),
        ("12345678901234567890", "12345678901234567891", False),
        ("12345678901234567890", "12345678901234567890.0", True),
        ("1e400", "1e401", False),
        ("true", "1", False),
        ("[false]", "[0]", False),
        ('"1"', "1", False),
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ('"é"', '"\\u00e9"', True),
        ('{"a": null}', "{}", False),
    ],
)
def test_values_are_compared_by_meaning(left: str, right: str, expected: bool) -> None:
    assert same(read(left), read(right)) is expected
    assert same(read(right), read(left)) is expected


def test_integers_beyond_pythons_own_limit_are_read() -> None:
    assert same(read("1" * 5000), read("1" * 5000))
    assert not same(read("1" * 5000), read("1" * 4999 + "2"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_a_document_equals_itself_in_any_layout(value: Any) -> None:
    compact, spread = json.dumps(value), json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    assert same(read(compact), read(spread))
