"""Owns finding a user's table, its columns and what their types mean for an entity's id. Changes nothing."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from outbox.errors import OutboxError, SchemaMismatch
from outbox.store.pool import fetch_row, fetch_rows
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
    rows = fetch_rows(conn, queries("producers")["columns"], {"oid": oid})
    return {row["name"]: Column(**row) for row in rows}


def may_fit(source: Column, target: Column) -> bool:
    """By type alone: what is found for a text only shows when it is read."""
    texts = target.category in _TEXTS or source.category in _TEXTS
    return texts or source.category == target.category == "N" or _same_kind(source, target)


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


class CannotAttach(OutboxError):
    """The table cannot be attached to the outbox. Nothing was changed. Correct what is listed and try again."""

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("".join(f"\n  - {problem}" for problem in problems))


class TablePartition(NamedTuple):
    """One of a table's partitions, or the table itself. `guarded`: TRUNCATE is refused there."""

    oid: int
    schema: str
    relation: str
    guarded: bool

    @property
    def name(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.relation)


def read_partitions(conn: psycopg.Connection[Any], oid: int) -> tuple[TablePartition, ...]:
    return tuple(TablePartition(**row) for row in fetch_rows(conn, queries("producers")["partitions"], {"oid": oid}))


@dataclass(frozen=True, slots=True)
class SourceTable:
    oid: int
    schema: str
    relation: str
    kind: str
    permanent: bool
    is_partition: bool
    has_children: bool
    is_child: bool
    is_subscribed: bool
    outbox_schema: str
    to_log: bool
    """Whether producers write to the event log instead of search_outbox_events."""
    events_columns: dict[str, Column]
    partitions: tuple[TablePartition, ...]
    columns: dict[str, Column]
    primary_key: tuple[str, ...]
    unique: frozenset[str]
    """Columns that are unique by themselves, or together with a partition key."""
    foreign: frozenset[str]
    """Columns that point to rows of other tables."""

    def is_own(self, id_column: str | None) -> bool:
        return id_column in self.unique and id_column not in self.foreign

    @property
    def name(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.relation)

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.relation}"

    @property
    def events_id(self) -> Column:
        return self.events_columns["entity_id"]

    @property
    def events(self) -> sql.Identifier:
        return sql.Identifier(self.outbox_schema, "search_outbox_log" if self.to_log else "search_outbox_events")


def find(conn: psycopg.Connection[Any], table: str) -> SourceTable:
    """Resolve a name as it is written (capitals kept), or else as SQL would."""
    row = _look_up(conn, table)
    if row is None:
        raise CannotAttach([f"there is no table {table}. Give its name as in SQL, with its schema if needed."])
    outbox = conn.execute(queries("producers")["outbox_schema"]).fetchone()
    if outbox is None:
        raise SchemaMismatch("search_outbox_events is not there")
    return SourceTable(
        **row,
        outbox_schema=outbox[0],
        to_log=outbox[2],
        events_columns=read_columns(conn, outbox[1]),
        partitions=read_partitions(conn, row["oid"]),
        columns=read_columns(conn, row["oid"]),
        primary_key=_names(conn, "primary_key", row["oid"]),
        unique=frozenset(_names(conn, "unique_columns", row["oid"])),
        foreign=frozenset(_names(conn, "foreign_columns", row["oid"])),
    )


def _names(conn: psycopg.Connection[Any], query: str, oid: int) -> tuple[str, ...]:
    return tuple(name for (name,) in conn.execute(queries("producers")[query], {"oid": oid}))


def _look_up(conn: psycopg.Connection[Any], table: str) -> dict[str, Any] | None:
    try:
        return fetch_row(conn, queries("producers")["table"], {"name": table})
    except psycopg.errors.InvalidName:  # before PostgreSQL 16 to_regclass raises on what is no name at all
        return None


def about_rows(conn: psycopg.Connection[Any], source: SourceTable) -> int | None:
    """By PostgreSQL's own figures: to read the table would run what its owner wrote for it, with our rights."""
    row = conn.execute(queries("producers")["estimate"], {"oid": source.oid}).fetchone()
    return row[0] if row else None


def table_problems(conn: psycopg.Connection[Any], source: SourceTable) -> list[str]:
    found = {
        f"{source.shown} is not a table. Attach the table behind it.": source.kind not in ("r", "p"),
        f"{source.shown} is temporary or unlogged: its rows can vanish without a delete. Use an ordinary table.": (
            not source.permanent
        ),
        f"{source.shown} has child tables, whose rows fire no trigger of it. Attach each.": source.kind == "r"
        and source.has_children,
        f"{source.shown} is a partition. Attach its parent.": source.is_partition,
        f"{source.shown} belongs to the outbox itself. Attach a table of your own.": source.relation.startswith(
            "search_outbox_"
        ),
    }
    problems = [problem for problem, is_so in found.items() if is_so]
    owner = conn.execute(queries("producers")["cascading_owner"], {"oid": source.oid}).fetchone()
    if owner is not None:
        problems.append(
            f"foreign keys change {source.shown} with the rights of its owner {owner[0]}, which may not write events. "
            f"Make {owner[0]} a member of search_outbox_producer."
        )
    return problems


def row_trigger_reason(source: SourceTable, columns: tuple[str, ...]) -> str:
    """Why triggers of this table must fire for each row, or nothing."""
    if source.kind == "p":
        return "it is partitioned: statement triggers would miss statements that name a partition"
    if source.is_child:
        return "it is a child table: statement triggers would miss statements that name its parent"
    if source.is_subscribed:
        return "a subscription fills it: logical replication fires no statement triggers"
    if columns and not source.primary_key:
        return "it has no primary key that pairs old and new rows for --columns"
    return ""
