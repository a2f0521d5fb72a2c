"""Owns what fuzzers are fed: JSON of every shape, text with every nasty sign, and words that rules search for."""

import json
from typing import Any

from hypothesis import strategies as st

NASTY = "\x00\n\r\t\x1b\x7f\x85\u2028\u2029\ufeff\u202e\ud800\udfff\"'\\/[](){}<>=:;,&%#@ \U0001f4a9\u00e9"
TEXT = st.text() | st.text(alphabet=NASTY, max_size=40) | st.text(st.characters(), max_size=40)
# Texts that hold the words by which rules of redaction and classification decide.
WORDS = st.sampled_from(
    [
        "Preview of field's value: '", "For input string: \"", "date field [", "with format", "token ", "Text '",
        "at [Source: ", "current version [7] is higher than the one provided [3]",
        "no write index is defined for alias",
        "this action would add [", "password=", "api_key: ", "ApiKey ", "Basic ", "Bearer ", "authorization: ",
        "postgresql://u:", "@host/", "field [", "] of type [", "'", '"', "[", "]", "***", "caused by", "\n", " ",
    ]
)  # fmt: skip
RICH = st.lists(WORDS | TEXT, max_size=12).map("".join)
TYPES = st.sampled_from(
    [
        "", "security_exception", "cluster_block_exception", "index_not_found_exception", "document_parsing_exception",
        "version_conflict_engine_exception", "es_rejected_execution_exception", "illegal_argument_exception",
        "action_request_validation_exception", "not_x_content_exception", "no_such_exception",
        "unavailable_shards_exception",
    ]
)  # fmt: skip
STATUSES = st.sampled_from([200, 201, 400, 401, 403, 404, 408, 409, 413, 429, 500, 502, 503]) | st.integers(-1, 1000)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5), max_leaves=15
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=6)


def _error(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | JSON,
            "reason": RICH | JSON,
            "caused_by": inner,
            "root_cause": st.lists(inner) | inner,
        },
    )


ERRORS: st.SearchStrategy[Any] = st.recursive(JSON | _error(st.none()), _error, max_leaves=6)


def written(value: Any, *, ascii_only: bool, indent: int | None, breaks: str) -> bytes:
    """JSON as some producer might lay it out; PostgreSQL keeps every blank of it."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    return text.replace("\n", breaks).encode("utf-8", "surrogatepass" if ascii_only else "replace")


@st.composite
def laid_out(draw: st.DrawFn, values: st.SearchStrategy[Any] = OBJECTS) -> bytes:
    """An object's text. Lone surrogates only escaped: PostgreSQL takes no others."""
    indent = draw(st.sampled_from([None, 0, 1, 4]))
    breaks = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n\t"]))
    body = written(draw(values), ascii_only=draw(st.booleans()), indent=indent, breaks=breaks)
    return draw(st.sampled_from([b"", b" ", b"\n", b"\r\n\t"])) + body + draw(st.sampled_from([b"", b"\n", b" \r\n"]))
