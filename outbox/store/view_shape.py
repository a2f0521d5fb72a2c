"""Owns what the view of documents is like: its columns and the type of its ids. Reads the catalogue, never the view."""

from collections.abc import Mapping
from typing import Any, Final, LiteralString, NamedTuple

from psycopg import Connection, sql

from outbox.errors import DocumentsUnavailable, OutboxError
from outbox.store.id_types import IdType
from outbox.store.queries import queries

NEEDED: Final = frozenset({"entity_type", "entity_id", "document"})
_OPTIONAL: Final[Mapping[str, LiteralString]] = {"version": "bigint", "routing": "text"}
_NO_VIEW: Final = IdType("text", "text", "text")


class UnsupportedIds(OutboxError):
    """The ids of the view have a type whose text is not one-to-one or depends on the session. Give them as text in the
    view (`id::text`; for a time `to_char`, for bytes `encode`), with an index on the same expression; docs/documents.md
    lists the types that need no cast."""

    exit_code = 78


class ViewShape(NamedTuple):
    """The columns with their types as declared; none where there is no view."""

    view: str
    columns: Mapping[str, str]
    id: IdType

    def check(self) -> None:
        """Raises DocumentsUnavailable where the view is not there or not whole, UnsupportedIds by the type's name."""
        if missing := NEEDED - self.columns.keys():
            raise DocumentsUnavailable(f"{self.view} does not exist or lacks {', '.join(sorted(missing))}")
        self.check_ids()

    def check_ids(self) -> None:
        if not self.id.supported:
            raise UnsupportedIds(f"{self.view}.entity_id is {self.id.declared}; give it as text, with an index on that")

    def query(self, text: LiteralString) -> sql.Composed:
        """A query in terms of this view."""
        optional = {column: self._optional(column, type_name) for column, type_name in _OPTIONAL.items()}
        view = sql.Identifier(*self.view.split("."))
        return sql.SQL(text).format(view=view, **self.id.fragments(), **optional)

    def _optional(self, column: str, type_name: LiteralString) -> sql.Composable:
        value = sql.Identifier("d", column) if column in self.columns else sql.SQL("null")
        return value + sql.SQL("::" + type_name)


def read_shape(connection: Connection[Any], view: str) -> ViewShape:
    name = sql.Identifier(*view.split(".")).as_string(connection)
    rows = connection.execute(queries("documents")["shape"], {"view": name}).fetchall()
    ids = [_id_type(*row[1:]) for row in rows if row[0] == "entity_id"]
    return ViewShape(view, {row[0]: row[1] for row in rows}, ids[0] if ids else _NO_VIEW)


def _id_type(
    declared: str, cast: LiteralString, base: str, operators: LiteralString, ties: bool, labels: list[str]
) -> IdType:
    return IdType(declared, cast, base, operators, ties, frozenset(labels))
