"""The difference between a payload and the document in Elasticsearch: lossless, ordered, the field at fault marked."""

import pytest

from outbox.policy.lossless import read
from outbox.policy.redact import masked
from outbox.web.difference import compare, offending_fields


def changes(ours: str, theirs: str, **more: tuple[str, ...]) -> dict[str, str]:
    return {row.path: row.change for row in compare(read(ours), read(theirs), **more).rows}


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
