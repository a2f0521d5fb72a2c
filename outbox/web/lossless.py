"""Reads and writes JSON without losing a digit, a key's order or a repeated key. It fetches nothing.

Numbers stay the text that was written: 20-digit integers and `1.10` survive, as they do on their way to Elasticsearch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any, Final, NamedTuple

INDENT: Final = "  "
DEEPEST: Final = 100  # Elasticsearch takes 20 unless told otherwise; what shows a value goes down level by level


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class Members(tuple[tuple[str, Any], ...]):
    """An object: its members in order, repeated keys and all."""

    __slots__ = ()


class Unreadable(ValueError):
    """The text is not JSON, or is nested too deep to be shown."""


def read(text: str | bytes) -> Any:
    """Members, lists, strings, Numbers, True, False, None. Raises Unreadable."""
    try:
        value = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Members)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not readable as JSON: {type(error).__name__}") from None
    if _is_deep(value):
        raise Unreadable(f"nested more than {DEEPEST} levels deep")
    return value


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, Members | list) else []
    for _ in range(DEEPEST):
        inside = ([member for _, member in each] if isinstance(each, Members) else each for each in level)
        level = [inner for inner in chain.from_iterable(inside) if isinstance(inner, Members | list)]
    return bool(level)


def scalar(value: Any) -> str:
    """A leaf as JSON writes it."""
    if isinstance(value, Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def compact(value: Any) -> str:
    """The whole value on one line."""
    if isinstance(value, Members):
        return "{" + ", ".join(f"{scalar(key)}: {compact(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(compact(inner) for inner in value) + "]"
    return scalar(value)


class Line(NamedTuple):
    """One line of a document as it is shown: what stands left of the value, the value, and which path it has."""

    indent: str
    key: str
    text: str
    kind: str
    path: str


def lines(value: Any, path: str = "", indent: str = "", key: str = "", tail: str = "") -> Iterator[Line]:
    """The document pretty-printed, a line at a time, so that a page may stop early."""
    if isinstance(value, Members | list) and value:
        members = isinstance(value, Members)
        yield Line(indent, key, "{" if members else "[", "bracket", path)
        inner = list(value) if isinstance(value, Members) else [(str(n), item) for n, item in enumerate(value)]
        for position, (name, item) in enumerate(inner):
            comma = "," if position < len(inner) - 1 else ""
            label = f"{scalar(name)}: " if members else ""
            yield from lines(item, joined(path, name, member=members), indent + INDENT, label, comma)
        yield Line(indent, "", ("}" if members else "]") + tail, "bracket", path)
    else:
        yield Line(
            indent,
            key,
            (compact(value) if isinstance(value, Members | list) else scalar(value)) + tail,
            kind_of(value),
            path,
        )


def joined(path: str, name: str, *, member: bool) -> str:
    if not member:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def kind_of(value: Any) -> str:
    if isinstance(value, Number):
        return "number"
    if isinstance(value, str):
        return "string"
    return "bracket" if isinstance(value, Members | list) else "word"


def same(left: Any, right: Any) -> bool:
    """Equal in meaning: 1.10 and 1.1 are one number, the order of members does not count."""
    if isinstance(left, Number) and isinstance(right, Number):
        return left == right or _decimal(left) == _decimal(right) is not None
    if isinstance(left, Members) and isinstance(right, Members):
        ours, theirs = dict(left), dict(right)
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
