"""The difference between a payload and the document in Elasticsearch: lossless, ordered, the field at fault marked."""

import pytest

from outbox.policy.lossless import Unreadable, read, same
from outbox.policy.redact import masked
from outbox.web.difference import compare, is_offending, lines, offending_fields


def changes(ours: str, theirs: str, **more: tuple[str, ...]) -> dict[str, str]:
    return {row.path: row.change for row in compare(read(ours), read(theirs), **more).rows}


def test_pretty_lines_hold_every_digit() -> None:
    shown = list(lines(read('{"a": [{"n": 12345678901234567890}], "b": {}}')))
    assert "".join(line.strip() for line in shown) == '{"a": [{"n": 12345678901234567890}],"b": {}}'


def test_what_is_nested_too_deep_is_unreadable_and_not_a_crash() -> None:
    with pytest.raises(Unreadable):
        read("[" * 100_000)


def test_numbers_are_compared_by_value_and_not_through_floats() -> None:
    assert same(read("1.10"), read("1.1"))
    assert not same(read("12345678901234567890"), read("12345678901234567891"))
    assert not same(read("1"), read('"1"'))


def test_each_field_says_how_it_differs() -> None:
    ours = '{"same": 1, "changed": 2, "added": 3, "deep": {"x": [1, 2]}}'
    theirs = '{"same": 1, "changed": 9, "removed": 4, "deep": {"x": [1, 3]}}'
    assert changes(ours, theirs) == {
        "same": "same",
        "changed": "changed",
        "added": "added",
        "deep.x": "changed",
        "removed": "removed",
    }


def test_lists_of_objects_are_compared_place_by_place() -> None:
    assert changes('{"a": [{"n": 1}, {"n": 2}]}', '{"a": [{"n": 1}]}') == {"a[0].n": "same", "a[1]": "added"}


def test_masked_fields_say_nothing_about_whether_they_differ() -> None:
    ours, theirs = masked(b'{"Mail": "a", "n": 1}', ["mail"]), masked(b'{"Mail": "b", "n": 1}', ["mail"])
    assert changes(ours.decode(), theirs.decode(), masked=("mail",)) == {"Mail": "masked", "n": "same"}


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        ("document_parsing_exception: failed to parse field [price] of type [long] in document", ("price",)),
        ("object mapping for [a.b] tried to parse field [c] as object", ("a.b", "c")),
        ("strict_dynamic_mapping_exception: mapping set to strict, dynamic introduction of [x] within [_doc]", ("x",)),
        ("illegal_argument_exception: mapper [tags] cannot be changed from type [text] to [long]", ("tags",)),
        ("connection refused", ()),
        ("", ()),
    ],
)
def test_the_field_at_fault_is_read_from_the_error(error: str, fields: tuple[str, ...]) -> None:
    assert offending_fields(error) == fields


def test_a_path_in_an_array_or_below_the_field_is_offending_too() -> None:
    assert is_offending("items[3].price", ["items.price"])
    assert is_offending("a.b.c", ["a.b"])
    assert not is_offending("price2", ["price"])
