"""Masks named fields of a payload before it is shown; every other digit and letter stays as the producer wrote it."""

import json
from collections.abc import Collection
from typing import Any

from outbox.policy.safe_text import MASK


class _Number(str):
    """A number as it was written: 20 digits and `1.10` survive, which no float would."""

    __slots__ = ()


def masked(payload: bytes, fields: Collection[str]) -> bytes:
    """The payload with the values of these fields, at any depth, replaced; names are compared without case.

    Only shape and white space may change. Where nothing is to be masked the very bytes are returned. What is no JSON,
    or nested some hundred levels deep, is masked as a whole: nobody can say what it holds.
    """
    if not fields:
        return payload
    hidden = frozenset(field.casefold() for field in fields)
    try:
        parsed = json.loads(payload, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Pairs)
        return _written(parsed, hidden).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return json.dumps(MASK).encode()


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs: a name that occurs twice is shown twice."""


def _written(value: Any, hidden: frozenset[str]) -> str:
    if isinstance(value, _Pairs):
        inside = (f"{json.dumps(name)}: {_member(name, each, hidden)}" for name, each in value)
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_written(each, hidden) for each in value) + "]"
    if isinstance(value, _Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _member(name: str, value: Any, hidden: frozenset[str]) -> str:
    return json.dumps(MASK) if name.casefold() in hidden else _written(value, hidden)
