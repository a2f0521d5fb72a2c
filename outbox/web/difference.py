"""How a payload is shown: line by line, and compared with the document in Elasticsearch. Fetches neither."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from outbox.policy.lossless import Members, compact, same, scalar

MOST_ROWS: Final = 500
LONGEST_VALUE: Final = 400
_ABSENT: Final = object()
# Elasticsearch names the field in brackets after these words; our redaction keeps such names.
_NAMED: Final = re.compile(
    r"(?:field|mapper|object mapping for|introduction of|parse field|fields?) \[([^\[\]]{1,300})\]", re.IGNORECASE
)
_NOT_FIELDS: Final = frozenset({"_doc", "***"})


class Row(NamedTuple):
    """One field. `change`: same, changed, added (only in the event), removed (only in Elasticsearch), masked."""

    path: str
    change: str
    ours: str | None
    theirs: str | None
    offending: bool


class Difference(NamedTuple):
    rows: list[Row]
    cut: bool

    @property
    def changed(self) -> int:
        return sum(row.change not in ("same", "masked") for row in self.rows)


def offending_fields(error: str) -> tuple[str, ...]:
    """The fields that an error of Elasticsearch names, in order."""
    named = (name.strip() for name in _NAMED.findall(error or ""))
    return tuple(dict.fromkeys(name for name in named if name and name not in _NOT_FIELDS))


def is_offending(path: str, fields: Iterable[str]) -> bool:
    """Whether the path is such a field or lies inside one. Elasticsearch writes no positions in arrays."""
    plain = re.sub(r"\[\d+\]", "", path)
    return any(plain == field or plain.startswith(f"{field}.") for field in fields)


def compare(ours: Any, theirs: Any, fields: Iterable[str] = (), masked: Iterable[str] = ()) -> Difference:
    """All fields of both, in the event's order, then those only in Elasticsearch.

    Values of `masked` names are hidden on both sides, so nothing is said about whether they differ.
    """
    named, hidden = tuple(fields), frozenset(name.casefold() for name in masked)
    rows: list[Row] = []
    for path, left, right in _pairs("", ours, theirs):
        if len(rows) == MOST_ROWS:
            return Difference(rows, cut=True)
        change = "masked" if _last(path) in hidden else _change(left, right)
        rows.append(Row(path, change, _shown(left), _shown(right), is_offending(path, named)))
    return Difference(rows, cut=False)


def _last(path: str) -> str:
    return re.sub(r"\[\d+\]", "", path).rpartition(".")[2].casefold()


def _pairs(path: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, Members) and isinstance(right, Members) and (left or right):
        ours, theirs = dict(left), dict(right)
        for key in dict.fromkeys([*ours, *theirs]):
            inner = joined(path, key, member=True)
            yield from _pairs(inner, ours.get(key, _ABSENT), theirs.get(key, _ABSENT))
    elif isinstance(left, list) and isinstance(right, list) and (_deep(left) or _deep(right)):
        for place in range(max(len(left), len(right))):
            yield from _pairs(joined(path, str(place), member=False), _at(left, place), _at(right, place))
    else:
        yield path, left, right


def _deep(values: list[Any]) -> bool:
    """A list of plain values reads best on one line."""
    return any(isinstance(value, Members | list) for value in values)


def _at(values: list[Any], place: int) -> Any:
    return values[place] if place < len(values) else _ABSENT


def _change(left: Any, right: Any) -> str:
    if left is _ABSENT:
        return "removed"
    if right is _ABSENT:
        return "added"
    return "same" if same(left, right) else "changed"


def _shown(value: Any) -> str | None:
    if value is _ABSENT:
        return None
    text = compact(value)
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"


INDENT: Final = "  "


def lines(value: Any, indent: str = "", key: str = "", tail: str = "") -> Iterator[str]:
    """The document pretty-printed, a line at a time, so that a page may stop early."""
    if isinstance(value, Members | list) and value:
        opens, closes = "{}" if isinstance(value, Members) else "[]"
        yield f"{indent}{key}{opens}"
        pairs = value if isinstance(value, Members) else [(None, item) for item in value]
        inner = [("" if name is None else f"{scalar(name)}: ", item) for name, item in pairs]
        for position, (label, item) in enumerate(inner, 1):
            yield from lines(item, indent + INDENT, label, "," if position < len(inner) else "")
        yield f"{indent}{closes}{tail}"
    else:
        yield f"{indent}{key}{compact(value)}{tail}"


def joined(path: str, name: str, *, member: bool) -> str:
    if not member:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name
