"""Owns finding a user's table and judging whether it can be attached; it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from outbox.errors import OutboxError, SchemaMismatch

BODY_QUOTE = "$capture$"


class CannotAttach(OutboxError):
    """The table cannot be attached to the outbox. Nothing was changed. Correct what is listed and try again."""

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("".join(f"\n  - {problem}" for problem in problems))


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A user's table, and the schema in which the outbox lives."""

    oid: int
    schema: str
    relation: str
    outbox_schema: str
    partitions: tuple[sql.Identifier, ...]

    @property
    def name(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.relation)

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.relation}"


def find(conn: psycopg.Connection, table: str) -> SourceTable:
    """Resolve a name as it is written (capitals kept), or else as SQL would."""
    row = _look_up(conn, table)
    if row is None:
        raise CannotAttach([f"there is no table {table}. Give its name as in SQL, with its schema if needed."])
    oid, schema, relation = row
    return SourceTable(oid, schema, relation, _outbox_schema(conn), _partitions(conn, oid))


def _look_up(conn: psycopg.Connection, table: str) -> tuple[int, str, str] | None:
    query = (
        "select c.oid, n.nspname, c.relname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace"
        " where c.oid = coalesce(to_regclass(quote_ident(%(name)s)), to_regclass(%(name)s))"
    )
    try:
        return conn.execute(query, {"name": table}).fetchone()
    except psycopg.errors.InvalidName:  # before PostgreSQL 16 to_regclass raises on what is no name at all
        return None


def check(
    conn: psycopg.Connection, source: SourceTable, entity_type: str, id_column: str, routing_column: str | None
) -> None:
    """Raise with everything that stands in the way: a trigger that fails would fail the user's own writes."""
    problems = [
        *_table_problems(conn, source),
        *_type_problems(entity_type),
        *_quote_problems(source.shown, entity_type, id_column, routing_column or ""),
        *_column_problems(conn, source, id_column, routing_column),
    ]
    if problems:
        raise CannotAttach(problems)


def _outbox_schema(conn: psycopg.Connection) -> str:
    row = conn.execute(
        "select n.nspname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace"
        " where c.oid = to_regclass('search_outbox_events')"
    ).fetchone()
    if row is None:
        raise SchemaMismatch("search_outbox_events is not there")
    return str(row[0])


def _partitions(conn: psycopg.Connection, oid: int) -> tuple[sql.Identifier, ...]:
    """The table itself and, where it has them, all partitions."""
    rows = conn.execute(
        "select n.nspname, c.relname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace"
        " where c.oid = %(oid)s or c.oid in (select relid from pg_partition_tree(%(oid)s::regclass)) order by 1, 2",
        {"oid": oid},
    ).fetchall()
    return tuple(sql.Identifier(schema, relation) for schema, relation in rows)


def _table_problems(conn: psycopg.Connection, source: SourceTable) -> list[str]:
    row = conn.execute(
        "select relkind::text, relpersistence = 'p', relhassubclass, relispartition from pg_class where oid = %s",
        (source.oid,),
    ).fetchone()
    kind, permanent, has_children, is_partition = row or ("", False, False, False)
    found = {
        f"{source.shown} is not a table. Attach the table behind it.": kind not in ("r", "p"),
        f"{source.shown} is temporary or unlogged: its rows can vanish without a delete.": not permanent,
        f"{source.shown} has child tables, whose rows fire no trigger of it. Attach each.": kind == "r"
        and has_children,
        f"{source.shown} is a partition. Attach its parent.": is_partition,
        f"{source.shown} belongs to the outbox itself.": source.relation.startswith("search_outbox_"),
    }
    return [problem for problem, is_so in found.items() if is_so]


def _type_problems(entity_type: str) -> list[str]:
    if not entity_type.strip():
        return ["the type is empty. Give the kind of entity, for example article."]
    if ":" in entity_type:
        return [f"the type {entity_type!r} has a colon, which separates type and id in a document's _id."]
    return []


def _quote_problems(*names: str) -> list[str]:
    """The names become part of a function's body, which ends where this stands."""
    return [f"{name!r} holds {BODY_QUOTE}, which cannot be quoted." for name in names if BODY_QUOTE in name]


def _column_problems(
    conn: psycopg.Connection, source: SourceTable, id_column: str, routing_column: str | None
) -> list[str]:
    columns: dict[str, bool] = dict(
        conn.execute(
            "select a.attname, a.attnotnull and exists (select from pg_index as x where x.indrelid = a.attrelid"
            " and x.indisunique and x.indisvalid and x.indpred is null and a.attnum = any (x.indkey::int2[]))"
            " from pg_attribute as a where a.attrelid = %s and a.attnum > 0 and not a.attisdropped",
            (source.oid,),
        ).fetchall()
    )
    problems = [
        f"{source.shown} has no column {name}. It has {', '.join(sorted(columns))}."
        for name in (id_column, routing_column)
        if name is not None and name not in columns
    ]
    if columns.get(id_column) is False:
        problems.append(f"column {id_column} does not name one row: it must be NOT NULL and in a unique index.")
    return problems
