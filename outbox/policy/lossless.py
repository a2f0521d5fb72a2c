"""Reads, writes and compares JSON without losing a digit. Reads no database and no index.

As it was written (`read`): numbers stay text, members keep their order and repeated keys; 20-digit integers and `1.10`
survive, as they do on their way to Elasticsearch. By value (`read_exact`): 1.10, 1.1 and 11e-1 are one number,
12345678901234567890 and its neighbour are two (a float would not see that); the order of members does not count, the
order of a list does.
"""

import json
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any, Final

DEEPEST: Final = 100  # Elasticsearch takes 20 by default; what shows a value goes down level by level


class Number(str):
    __slots__ = ()


class Members(tuple[tuple[str, Any], ...]):
    """An object: its members in order, repeated keys and all."""

    __slots__ = ()


class Unreadable(ValueError):
    """The text is not JSON, or is nested too deep to be shown."""


_TEXTUAL: Final = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Members
)


def read(text: str | bytes) -> Any:
    """Members, lists, strings, Numbers, True, False, None. Raises Unreadable."""
    value = read_any_depth(text)
    if _is_deep(value):
        raise Unreadable(f"nested more than {DEEPEST} levels deep")
    return value


def read_any_depth(text: str | bytes) -> Any:
    """The same, for whoever does not go down into it level by level."""
    return _decoded(_TEXTUAL, text)


def _decoded(decoder: json.JSONDecoder, text: str | bytes) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not readable as JSON: {type(error).__name__}") from None


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, Members | list) else []
    for _ in range(DEEPEST):
        inside = ([member for _, member in each] if isinstance(each, Members) else each for each in level)
        level = [inner for inner in chain.from_iterable(inside) if isinstance(inner, Members | list)]
    return bool(level)


def scalar(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def compact(value: Any) -> str:
    if isinstance(value, Members):
        return "{" + ", ".join(f"{scalar(key)}: {compact(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(compact(inner) for inner in value) + "]"
    return scalar(value)


def same(left: Any, right: Any) -> bool:
    """Equal in meaning: 1.10 and 1.1 are one number, the order of members does not count."""
    ours, theirs = compact(left), compact(right)
    try:
        return ours == theirs or same_exact(read_exact(ours), read_exact(theirs))
    except Unreadable:  # an exponent beyond all measure
        return False


# By value

_LONGEST_INT: Final = 1000  # Python refuses to read integers of over 4,300 digits


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < _LONGEST_INT else Decimal(digits)


def _fraction(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise ValueError("an exponent beyond all measure") from None


_EXACT: Final = json.JSONDecoder(parse_int=_integer, parse_float=_fraction)


def read_exact(text: str) -> Any:
    """The value with every number exact, to be compared with another. Raises Unreadable."""
    return _decoded(_EXACT, text)


def same_exact(left: Any, right: Any) -> bool:
    """Python takes true for 1: so what it calls equal is compared once more."""
    return bool(left == right) and _same_kinds(left, right)


def _same_kinds(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return all(_same_kinds(value, right[name]) for name, value in left.items())
    if isinstance(left, list):
        return all(map(_same_kinds, left, right))
    return isinstance(left, bool) == isinstance(right, bool)


def differing(left: Any, right: Any, most: int = 5) -> list[str]:
    """The first members, by name, in which two objects differ. Never a value: it may be somebody's."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        return []
    absent = object()
    names = [n for n in {**left, **right} if not same_exact(left.get(n, absent), right.get(n, absent))]
    return sorted(names)[:most]
