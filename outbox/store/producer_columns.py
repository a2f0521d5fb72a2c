"""Owns what a column's type means for an entity's id; it reads catalogues and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import psycopg
from psycopg.rows import dict_row

from outbox.store.queries import queries

# Arrays, rows, dates and times, shapes, ranges, spans of time, pseudo-types: their text has parts, or depends on
# settings of the session such as DateStyle and TimeZone.
_NAMELESS_CATEGORIES = frozenset("ACDGRTP")
_NAMELESS_TYPES = frozenset(
    ["float4", "float8", "money", "bytea", "json", "jsonb", "jsonpath", "xml", "tsvector", "tsquery"]
)
_TEXTS = frozenset("SE")  # strings and enums
_INTEGERS = {"int2": 2, "int4": 4, "int8": 8}
# Characters of the longest value.
_LENGTHS = {"int2": 6, "int4": 11, "int8": 20, "uuid": 36, "bool": 5}


class Fit(Enum):
    """Whether ids of one type can be those of another."""

    YES = "yes"
    MAYBE = "maybe"  # as text, value by value
    NO = "no"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    not_null: bool
    generated: str  # s stored, v virtual
    shown: str
    base: str
    base_schema: str
    category: str
    length: int | None

    @property
    def is_virtual(self) -> bool:
        return self.generated == "v"

    @property
    def names_an_entity(self) -> bool:
        """Whether its text is the same in every session."""
        return self.category not in _NAMELESS_CATEGORIES and self.base not in _NAMELESS_TYPES


def read_columns(conn: psycopg.Connection[Any], oid: int) -> dict[str, Column]:
    """The columns of a table or view by their names, in order."""
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(queries("producers")["columns"], {"oid": oid}).fetchall()
    return {row["name"]: Column(**row) for row in rows}


def fit(source: Column, target: Column) -> Fit:
    """By type alone: what is found for a text only shows when it is read."""
    if target.category in _TEXTS or _same_kind(source, target):
        return Fit.YES
    if source.category in _TEXTS or source.category == target.category == "N":
        return Fit.MAYBE
    return Fit.NO


def always_stored(source: Column, target: Column) -> bool:
    """Whether every value of `source` can be written to `target`, so that no write of the user's fails for it."""
    if target.category == "S":
        longest = source.length or _LENGTHS.get(source.base)
        return target.length is None or (longest is not None and longest <= target.length)
    if source.base in _INTEGERS and target.base in _INTEGERS:
        return _INTEGERS[source.base] <= _INTEGERS[target.base]
    return _same_kind(source, target)


def _same_kind(source: Column, target: Column) -> bool:
    if source.base in _INTEGERS and target.base in _INTEGERS:
        return True
    return (source.base_schema, source.base) == (target.base_schema, target.base)
