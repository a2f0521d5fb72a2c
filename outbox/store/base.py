"""Owns what stores have in common: the named queries of one topic, and how one of them is run. Knows no query."""

from contextlib import AbstractContextManager
from typing import Any, ClassVar

from psycopg import Connection

from outbox.store.pool import Database, bounded_read, fetch_row, fetch_rows
from outbox.store.queries import queries


class TopicStore:
    """The queries of one topic over one pool. Each method runs one of them, in a connection of its own."""

    _topic: ClassVar[str] = ""

    def __init_subclass__(cls, *, topic: str = "") -> None:
        cls._topic = topic or cls._topic

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries(self._topic)

    def _connection(self) -> AbstractContextManager[Connection[Any]]:
        return self._database.connection()

    def _all(self, query: str, /, **named: Any) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return connection.execute(self._sql[query], named).fetchall()

    def _one(self, query: str, /, **named: Any) -> tuple[Any, ...] | None:
        with self._connection() as connection:
            return connection.execute(self._sql[query], named).fetchone()

    def _value(self, query: str, /, **named: Any) -> Any:
        """The first column of the one row that there is; None where there is no row."""
        row = self._one(query, **named)
        return None if row is None else row[0]

    def _rows(self, query: str, /, **named: Any) -> list[dict[str, Any]]:
        with self._connection() as connection:
            return fetch_rows(connection, self._sql[query], named)

    def _row(self, query: str, /, **named: Any) -> dict[str, Any] | None:
        with self._connection() as connection:
            return fetch_row(connection, self._sql[query], named)

    def _run(self, query: str, /, **named: Any) -> int:
        """How many rows it changed."""
        with self._connection() as connection:
            return connection.execute(self._sql[query], named).rowcount


class BoundedStore(TopicStore):
    """Reads for people: each read has a limit of time, and changes nothing."""

    def _connection(self) -> AbstractContextManager[Connection[Any]]:
        return bounded_read(self._database)
