"""Owns what `outbox attach` asks of the view of documents, and the SQL that makes a table's rows documents of it.

Runs none of that SQL: the view belongs to the user."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from outbox.ports import Attachment
from outbox.store.attach.tables import Column, SourceTable, read_columns
from outbox.store.pool import fetch_rows
from outbox.store.queries import queries
from outbox.store.view_shape import MATERIALISED, ViewShape, read_shape


@dataclass(frozen=True, slots=True)
class DocumentsView:
    """Without columns where there is none."""

    shape: ViewShape
    columns: dict[str, Column]
    reads: frozenset[int]

    @property
    def name(self) -> str:
        return self.shape.view

    @property
    def quoted(self) -> sql.Identifier:
        return sql.Identifier(*self.name.split("."))

    def has_type(self, conn: psycopg.Connection[Any], entity_type: str, table: sql.Composable, oid: int) -> bool:
        """Whether changes of the table have documents; of an empty table, whether the view reads it."""
        if not self.columns:
            return False
        asked = sql.SQL(queries("producers")["has_entity_type"]).format(view=self.quoted)
        if conn.execute(asked, {"entity_type": entity_type}).fetchone() == (True,):
            return True
        filled = sql.SQL("select exists (select from {})").format(table)
        return oid in self.reads and conn.execute(filled).fetchone() == (False,)

    def problems(
        self, conn: psycopg.Connection[Any], source: SourceTable, wanted: Attachment, lacks_rows: bool
    ) -> Iterator[str]:
        """With the SQL to run first where the table's rows are to be documents and the view lacks them."""
        if self.shape.materialised:
            yield f"{self.name} {MATERIALISED}"
        elif lacks_rows and wanted.id_column is None:
            yield "--document row makes each row the document of its own id. Give --id COLUMN instead of --via."
        elif lacks_rows and not self.columns:
            made = sql.SQL("create view {} as {};").format(self.quoted, self._select(source, wanted)).as_string(conn)
            yield f"there is no view {self.name}. Run this, then the command again:\n{made}"
        elif lacks_rows:
            added = sql.SQL("union all {}").format(self._select(source, wanted)).as_string(conn)
            lacks = f"{self.name} has no documents of type {wanted.entity_type}"
            yield f"{lacks}. Add this to its query, then run the command again:\n{added}"

    def _select(self, source: SourceTable, wanted: Attachment) -> sql.Composed:
        """In the order and of the types that the view has, as `union all` needs them."""
        given: dict[str, sql.Composable] = {
            "entity_type": sql.SQL("{}::text").format(sql.Literal(wanted.entity_type)),
            "entity_id": sql.Identifier("t", wanted.id_column or ""),
            "document": sql.SQL("to_json(t)"),
        }
        typed = {
            name: sql.SQL("{}::{}").format(given.get(name, sql.NULL), sql.SQL(column.shown))
            for name, column in self.columns.items()
        }
        named = (sql.SQL("{} as {}").format(value, sql.Identifier(name)) for name, value in (typed or given).items())
        return sql.SQL("select {} from {} as t").format(sql.SQL(", ").join(named), source.name)


def find(conn: psycopg.Connection[Any], name: str) -> DocumentsView:
    quoted = sql.Identifier(*name.split(".")).as_string(conn)
    read = fetch_rows(conn, queries("producers")["read_relations"], {"view": quoted})
    oid = next((row["oid"] for row in read if row["itself"]), 0)
    return DocumentsView(read_shape(conn, name), read_columns(conn, oid), frozenset(row["oid"] for row in read))
