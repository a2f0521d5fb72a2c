"""Values and secrets are removed; names and types stay; the same kind of failure keeps its fingerprint."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.redact import fingerprint, redact

SECRET = "hunter2-Ünïcode"
TEXTS = [
    ("[1:6] failed to parse field [price] of type [integer] in document with id '{}'. Preview of field's value: '{}'",
     "[price] of type [integer]"),
    ("For input string: \"{}\"", "For input string"),
    ("failed to parse date field [{}] with format [strict_date_optional_time||epoch_millis]",
     "with format [strict_date_optional_time||epoch_millis]"),
    ("Text '{}' could not be parsed at index 0", "could not be parsed at index 0"),
    ("Failed to parse value [{}] as only [true] or [false] are allowed.", "as only [true] or [false] are allowed"),
    ("Value [{}] is out of range for a long", "out of range for a long"),
    ("Numeric value ({}) out of range of int (-2147483648 - 2147483647)", "out of range of int"),
    ("'{}' is not an IP string literal.", "is not an IP string literal"),
    ("Duplicate field 'title'\n at [Source: (byte[])\"{{\"title\":\"{}\"}}\"; line: 1, column: 32]",
     "Duplicate field [title]"),
    ("Unrecognized token '{}': was expecting (JSON String, Number)", "was expecting"),
    ("unknown join name [{}] for field [family]", "for field [family]"),
    ("unsupported symbol [{}] in geohash [{}]", "unsupported symbol"),
    ("The [cosine] similarity does not support vectors with zero magnitude. Preview of invalid vector: [{}]",
     "similarity does not support vectors with zero magnitude"),
    ("Invalid format: \"{}\" is malformed at \"{}\"", "Invalid format"),
    ("immense term in field=\"word\" (too long). The prefix of the first immense term is: '[{}]...', original",
     "field [word]"),
    ("something new quotes [{}] in a way that nobody has seen", "something new quotes"),
    ("cannot connect to postgresql://user:{}@host/db", "postgresql://user:***@host/db"),
    ("cannot connect with host=a password={} dbname=b", "dbname=b"),
    ("Authorization: Bearer {}", "Authorization"),
    ("sent ApiKey {}==", "ApiKey ***"),
    ("Authorization: AWS4-HMAC-SHA256 Credential=AKID/20150830/x/es/aws4_request, Signature={}", "Authorization"),
    ("sent AWS4-HMAC-SHA256 Credential=AKID, SignedHeaders=host;x-amz-date, Signature={} at last", "AWS4-HMAC-SHA256"),
    ("x-amz-security-token:{} and AWS_SECRET_ACCESS_KEY={}", "AWS_SECRET_ACCESS_KEY=***"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kept"), TEXTS, ids=[text[:40] for text, _ in TEXTS])
def test_the_value_goes_and_the_name_stays(text: str, kept: str) -> None:
    told = redact(text.replace("{}", SECRET).replace("{{", "{").replace("}}", "}"))
    assert SECRET not in told
    assert kept in told


KEPT = [
    "mapper [aa] cannot be changed from type [long] to [text]",
    "mapping set to strict, dynamic introduction of [extra] within [_doc] is not allowed",
    "Limit of total fields [1000] has been exceeded while adding new fields [5]",
    "index [articles-v1] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark];",
    "no such index [articles]",
    "no write index is defined for alias [articles].",
    "[articles-v1][0] primary shard is not active",
    "action [indices:data/write/bulk[s]] is unauthorized for user [projector] on indices [articles]",
    "object mapping for [author] tried to parse field [author] as object, but found a concrete value",
    "can't merge a non object mapping [author.name] with an object mapping",
    "no such index [articles] and [action.auto_create_index] is [false]",
]


@pytest.mark.parametrize("text", KEPT)
def test_a_text_without_values_is_kept_word_for_word(text: str) -> None:
    assert redact(text) == text


@given(st.text(max_size=5000))
def test_any_text_becomes_one_that_can_be_stored(text: str) -> None:
    told = redact(text)
    assert len(told.encode()) <= 2048
    assert "\x00" not in told


def failed_to_parse(field: str, name: str, value: str, line: int) -> dict[str, object]:
    reason = f"[1:{line}] failed to parse field [{field}] of type [integer] in document with id '{name}'."
    inner = {"type": "number_format_exception", "reason": f'For input string: "{value}"'}
    return {
        "type": "document_parsing_exception",
        "reason": f"{reason} Preview of field's value: '{value}'",
        "caused_by": inner,
    }


words = st.text(alphabet=string.ascii_letters + string.digits + ":-_'\"", min_size=1, max_size=30)


@given(words, words, words, words, st.integers(0, 10**6))
def test_a_fingerprint_does_not_depend_on_ids_values_or_positions(
    name: str, other: str, value: str, second: str, line: int
) -> None:
    one = fingerprint("es_rejected_document", failed_to_parse("price", name, value, line))
    assert one == fingerprint("es_rejected_document", failed_to_parse("price", other, second, 1))
    assert len(one) == 16


def test_a_fingerprint_tells_fields_types_and_reasons_apart_and_not_index_versions() -> None:
    kinds = [
        fingerprint("es_rejected_document", failed_to_parse("price", "a", "b", 1)),
        fingerprint("es_rejected_document", failed_to_parse("stock", "a", "b", 1)),
        fingerprint("too_large", failed_to_parse("price", "a", "b", 1)),
    ]
    assert len(set(kinds)) == 3
    blocked = "index [articles-v{}] blocked by: [FORBIDDEN/8/index write (api)];"
    assert fingerprint("es_blocked", blocked.format(1)) == fingerprint("es_blocked", blocked.format(27))
