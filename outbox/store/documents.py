"""Looks up documents in the view that the user defines, one query a batch. Decides only which row is to blame."""

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import Connection, sql

from outbox.errors import DatabaseDown, DocumentsUnavailable, SchemaMismatch
from outbox.policy.document import not_an_object, refused
from outbox.policy.memory import inline_bytes
from outbox.policy.outcome import Code, Failure
from outbox.ports import Document, Named
from outbox.store.pool import Database
from outbox.store.queries import queries

GONE = Document(None, None, None)
TIMEOUT_MS = 10_000  # a lookup slower than this is a view without its index: the lease must not wait for it
_COLUMNS = {"entity_type", "entity_id", "document", "version"}
# What one row can do: 22 its values, 21 a subquery that finds two rows, P0, 38, 39 and 2F what a function raises.
_OF_ONE_ROW = ("22", "21", "P0", "38", "39", "2F")


class ViewDocuments:
    """The view `search_documents(entity_type, entity_id, document, version)`."""

    def __init__(self, database: Database, view: str, *, batch_bytes: int) -> None:
        self._database = database
        self._batch_bytes = batch_bytes
        self._view = view
        self._sql = queries("documents")
        self._look_up: sql.Composed | None = None

    def exists(self) -> bool:
        """Asked at the start: without the view, upserts without a payload fail instead of waiting for it."""
        with self._database.connection() as connection:
            return bool(self._shape(connection))

    def id_type(self) -> LiteralString:
        """The type of the view's own ids, from PostgreSQL's catalogue."""
        with self._database.connection() as connection:
            return self._shape(connection).get("entity_id", "text")

    def load(self, events: Sequence[Named], *, whole: bool = False) -> Mapping[UUID, Document]:
        """Every event gets an answer. Those that are left out for their size come with `whole`."""
        return self._load(events, None if whole else inline_bytes(self._batch_bytes, len(events)))

    def _load(self, events: Sequence[Named], most_bytes: int | None) -> dict[UUID, Document]:
        """A row whose expression fails is found by halving, and blamed alone. The halves are held together in the end:
        what may come along is that of the whole batch."""
        try:
            return self._read(events, most_bytes)
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith(_OF_ONE_ROW):
                raise DocumentsUnavailable(f"{self._view}: SQLSTATE {error.sqlstate}") from error
            if len(events) == 1:
                return {events[0].id: Document(None, None, None, _unreadable(error))}
        half = len(events) // 2
        return {**self._load(events[:half], most_bytes), **self._load(events[half:], most_bytes)}

    def _read(self, events: Sequence[Named], most_bytes: int | None) -> dict[UUID, Document]:
        parameters = {
            "ids": [e.id for e in events],
            "types": [e.entity_type for e in events],
            "entities": [e.entity_id for e in events],
            "inline_bytes": most_bytes,
        }
        try:
            with self._database.transaction(read_only=True, timeout_ms=TIMEOUT_MS) as connection:
                cursor = connection.cursor(binary=True)
                rows = cursor.execute(self._query(connection), parameters).fetchall()
        except DatabaseDown as error:
            if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise DocumentsUnavailable(f"a lookup in {self._view} took over {TIMEOUT_MS // 1000} s") from error
            raise
        except SchemaMismatch as error:  # gone, forbidden or changed since it was last read
            self._look_up = None
            raise DocumentsUnavailable(f"{self._view}: {error.detail}") from error
        found = {event.id: GONE for event in events}
        for id, body, size, version in rows:
            found[id] = _document(body, size, version)
        return found

    def _query(self, connection: Connection[Any]) -> sql.Composed:
        if self._look_up is None:
            shape = self._shape(connection)
            if missing := _COLUMNS - shape.keys():
                what = ", ".join(sorted(missing))
                raise DocumentsUnavailable(f"{self._view} does not exist or lacks {what}")
            self._look_up = sql.SQL(self._sql["look_up"]).format(
                view=sql.Identifier(*self._view.split(".")), id_type=sql.SQL(shape["entity_id"])
            )
        return self._look_up

    def _shape(self, connection: Connection[Any]) -> dict[str, LiteralString]:
        name = sql.Identifier(*self._view.split(".")).as_string(connection)
        return dict(connection.execute(self._sql["shape"], {"view": name}).fetchall())


def _document(body: bytes | None, size: int | None, version: int | None) -> Document:
    if size is None:
        failure = refused("the view has this entity with a null document", Code.ENTITY_NOT_FOUND)
        return Document(None, None, version, failure)
    return Document(body, size, version, None if body is None else not_an_object(body))


def _unreadable(error: psycopg.Error) -> Failure:
    """The server's primary message names the cause; its context could quote the row, so it is left out."""
    return refused(
        f"the view cannot compute this entity's document: SQLSTATE {error.sqlstate}, {type(error).__name__}",
        Code.PAYLOAD_INVALID,
    )
