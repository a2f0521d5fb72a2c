"""A document against a mapping, without sending it."""

import json
from typing import Any

import pytest

from outbox.policy.fitting import fit

MAPPING = {
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "double"},
        "flag": {"type": "boolean"},
        "title": {"type": "text"},
        "when": {"type": "date"},
        "who": {"properties": {"name": {"type": "keyword"}}},
        "loose": {"type": "long", "ignore_malformed": True},
        "off": {"type": "object", "enabled": False},
        "place": {"type": "geo_point"},
    }
}


def misfits(document: Any, mapping: dict[str, Any] | None = None) -> list[str]:
    return fit(json.dumps(document).encode(), MAPPING if mapping is None else mapping).misfits


@pytest.mark.parametrize(
    "document",
    [
        {"n": 1, "x": 1.5, "flag": True, "title": "t", "who": {"name": "a"}},
        {"n": "12", "x": " 1.5e3 ", "flag": "false"},  # Elasticsearch coerces these
        {"n": [1, 2], "title": ["a", 1, True], "who": [{"name": "a"}, {"name": "b"}]},
        {"n": None, "who": None},
        {"unknown": {"deep": 1}},  # dynamic by default
        {"loose": "no number", "off": 3},
        {"who.name": "dotted"},
    ],
)
def test_what_elasticsearch_takes_is_no_misfit(document: dict[str, Any]) -> None:
    assert misfits(document) == []


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"n": "abc"}, "n is a text that is no number, the mapping has integer"),
        ({"n": 2**31}, "n is a number out of range, the mapping has integer"),
        ({"n": True}, "n is true or false, the mapping has integer"),
        ({"x": {"a": 1}}, "x is an object, the mapping has double"),
        ({"flag": 1}, "flag is a number, the mapping has boolean"),
        ({"title": {"a": 1}}, "title is an object, the mapping has text"),
        ({"who": "me"}, "who is a text, the mapping has an object"),
        ({"who": {"name": {"first": "a"}}}, "who.name is an object, the mapping has keyword"),
        ({"n": [1, "abc"]}, "n is a text that is no number, the mapping has integer"),
    ],
)
def test_what_it_refuses_is_named_without_its_value(document: dict[str, Any], told: str) -> None:
    assert misfits(document) == [told]


def test_a_strict_mapping_takes_no_new_field_at_any_depth() -> None:
    strict = {"dynamic": "strict", "properties": {"who": {"properties": {"name": {"type": "text"}}}}}
    assert misfits({"who": {"age": 3}, "new": 1}, strict) == [
        "who.age is not in the mapping, which is strict",
        "new is not in the mapping, which is strict",
    ]


def test_types_that_only_elasticsearch_can_judge_are_said() -> None:
    found = fit(b'{"when": "tomorrow", "place": [1, 2]}', MAPPING)
    assert found.misfits == []
    assert found.unjudged == {"when (date)", "place (geo_point)"}


@pytest.mark.parametrize(("body", "told"), [(b"[1]", "not an object"), (b"{", "not JSON")])
def test_what_is_no_object_fits_nothing(body: bytes, told: str) -> None:
    assert told in fit(body, MAPPING).misfits[0]
