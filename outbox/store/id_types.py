"""Owns which types the ids of the view may have, which texts name such an id, and how ids compare. Asks no server."""

import re
from collections.abc import Mapping
from typing import Final, LiteralString, NamedTuple

from psycopg import sql

_INTEGER: Final = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_TEXTS: Final = frozenset({"text", "character varying", "bpchar", "citext"})
_SUPPORTED: Final = frozenset(_INTEGER) | _TEXTS | {"uuid", "numeric", "date", "enum"}
_DIGITS: Final = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMERIC: Final = re.compile(r"-?(0|[1-9]\d{0,131071})(\.\d{1,16383})?|NaN|-?Infinity", re.ASCII)
_DATE: Final = re.compile(r"(\d{4}|[1-9]\d{4,6})-(\d\d)-(\d\d)( BC)?", re.ASCII)
_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIRST_DATE, _LAST_YEAR = (-4713, 11, 24), 5_874_897  # PostgreSQL's own bounds; the year 0 is 1 BC

# A date's text depends on the session (DateStyle), as json it is always ISO 8601.
_TEXT_OF_DATE: Final = sql.SQL("((to_json(d.entity_id) #>> '{}') collate \"C\")")
_TEXT: Final = sql.SQL('(d.entity_id::text collate "C")')


class IdType(NamedTuple):
    """The type of the view's ids. `cast` is its base type without a length: a cast to char(n) cuts, a cast to a domain
    checks, and both would take one id for another or stop a whole batch."""

    declared: str
    cast: LiteralString
    base: str
    operators: LiteralString = "pg_catalog"  # the schema of `=` and `>`; that of citext need not be in the search path
    ties: bool = False  # ids that are equal by their type may have two texts
    labels: frozenset[str] = frozenset()

    @property
    def supported(self) -> bool:
        return self.base in _SUPPORTED

    def names(self, text: str) -> bool:
        """Whether an id may be written so. What may not is nobody's id: no row of the view can have it."""
        return text in self.labels if self.base == "enum" else names_an_id(text, self.base)

    def fragments(self) -> Mapping[str, sql.Composable]:
        """How queries speak of an id. `id_text` is what the document is named by: an event means only the row whose own
        text it has; the typed comparison beside it is for the index."""
        cast, text = sql.SQL(self.cast), _TEXT_OF_DATE if self.base == "date" else _TEXT
        # PostgreSQL takes a domain for its base type by itself, except where that is an enum.
        id = sql.SQL("d.entity_id::") + cast if self.base == "enum" else sql.SQL("d.entity_id")
        return {"id": id, "id_type": cast, "id_ops": sql.SQL(self.operators), "id_text": text}


def names_an_id(text: str, type_name: str) -> bool:
    """Whether an id of this type is written so. `007` and a uuid in capitals are no ids: they name other documents."""
    if type_name == "uuid":
        return _UUID.fullmatch(text) is not None
    if limit := _INTEGER.get(type_name):
        return _DIGITS.fullmatch(text) is not None and -limit <= int(text) < limit
    if type_name == "numeric":
        return _NUMERIC.fullmatch(text) is not None
    if type_name == "date":
        return _is_date(text)
    return "\x00" not in text


def _is_date(text: str) -> bool:
    if text in ("infinity", "-infinity"):
        return True
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = (int(part) for part in found.group(1, 2, 3))
    if not year or year > _LAST_YEAR or not 1 <= month <= 12:
        return False
    year = 1 - year if found[4] else year
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= _DAYS[month - 1] + leap and (year, month, day) >= _FIRST_DATE
