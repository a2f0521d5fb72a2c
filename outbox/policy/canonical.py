"""Says whether two JSON documents mean the same, without losing a digit. Reads no database and no index.

Numbers are compared by their decimal value: 1.10, 1.1 and 11e-1 are one number, 12345678901234567890 and its neighbour
are two (a float would not see that). The order of members does not count, the order of a list does.
"""

import json
from decimal import Decimal, InvalidOperation
from typing import Any, Final

_LONGEST_INT: Final = 1000  # Python refuses to read integers of over 4,300 digits


class Unreadable(ValueError):
    """Not JSON, or nested deeper than anyone reads."""


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < _LONGEST_INT else Decimal(digits)


def _fraction(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise ValueError("an exponent beyond all measure") from None


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_fraction)


def read(text: str) -> Any:
    """The value with every number exact. Raises Unreadable."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(type(error).__name__) from None


def same(left: Any, right: Any) -> bool:
    """Python takes true for 1: so what it calls equal is checked once more."""
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
    names = [n for n in {**left, **right} if not same(left.get(n, absent), right.get(n, absent))]
    return sorted(names)[:most]
