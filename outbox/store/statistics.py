"""Reads statistics from failed rows and from the roll-up, and keeps the roll-up small. Never reads done rows."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from psycopg.rows import dict_row

from outbox.store.pool import Database
from outbox.store.queries import queries

READ_LIMIT_MS: Final = 3_000
MOST_FAILED: Final = 200_000

Row = Mapping[str, Any]


class PostgresStatistics:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("statistics")

    def failed(self) -> Sequence[Row]:
        return self._rows("failed", most=MOST_FAILED)

    def failed_hours(self, window: timedelta) -> Sequence[Row]:
        return self._rows("failed_hours", window=window, most=MOST_FAILED)

    def discarded(self) -> Mapping[str, int]:
        return {row["entity_type"]: row["n"] for row in self._rows("discarded", limit=200)}

    def outcomes(self, window: timedelta) -> Sequence[Row]:
        return self._rows("outcomes", window=window)

    def totals(self) -> Sequence[Row]:
        return self._rows("totals")

    def replays(self, window: timedelta) -> Row:
        return self._rows("replays", window=window)[0]

    def compact(self, age: timedelta, limit: int) -> int:
        with self._database.transaction() as connection:
            row = connection.execute(self._sql["compact"], {"age": age, "limit": limit}).fetchone()
            return int(row[0]) if row else 0

    def forget(self, age: timedelta, limit: int) -> int:
        with self._database.connection() as connection:
            return connection.execute(self._sql["forget"], {"age": age, "limit": limit}).rowcount

    def _rows(self, query: str, **named: object) -> Sequence[Row]:
        with (
            self._database.transaction(read_only=True, timeout_ms=READ_LIMIT_MS) as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            return cursor.execute(self._sql[query], named).fetchall()
