"""Reads what `outbox status` and `outbox wait` show beside the sampler's counts, each look bounded. Changes nothing."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from psycopg.rows import dict_row

from outbox.store.looking import looking
from outbox.store.pool import Database
from outbox.store.queries import queries
from outbox.store.rebuilds import PostgresRebuilds
from outbox.store.schema_state import SchemaState, check_schema

MOST_ROWS: Final = 100_000  # 100,000 rows by their types are read in 100 ms
MOST_TYPES: Final = 200
MOST_WORKERS: Final = 200
WINDOW_SECONDS: Final = 10.0

Row = Mapping[str, Any]


class PostgresOverview:
    """Rows as they are, named by their columns; what they mean is said in `ops`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("overview")

    def schema(self) -> SchemaState:
        with self._database.connection() as connection:
            return check_schema(connection)

    def open_by_type(self) -> Sequence[Row]:
        return self._rows("open_by_type", most=MOST_ROWS, most_types=MOST_TYPES)

    def failed_by_type(self) -> Sequence[Row]:
        return self._rows("failed_by_type", most=MOST_ROWS, most_types=MOST_TYPES)

    def rate(self) -> float:
        """Events finished a second, over the last ten; at most 10,000, which is read in 30 ms."""
        named = {"window": timedelta(seconds=WINDOW_SECONDS), "most": MOST_ROWS}
        return self._number("finished_lately", **named) / WINDOW_SECONDS

    def workers(self) -> Sequence[Row]:
        return self._rows("workers", most=MOST_WORKERS)

    def pauses(self) -> Sequence[Row]:
        return self._rows("pauses")

    def rebuild(self) -> str | None:
        """What a rebuild that is not over is at, in words."""
        newest = PostgresRebuilds(self._database, owner="status").newest()
        return None if newest is None or newest.is_over else newest.sentence

    def last_seq(self) -> int:
        return self._number("last_seq")

    def open_up_to(self, seq: int) -> int:
        return self._number("open_up_to", seq=seq, most=MOST_ROWS)

    def _number(self, query: str, **named: object) -> int:
        with looking(self._database) as connection:
            row = connection.execute(self._sql[query], named).fetchone()
            return int(row[0]) if row else 0

    def _rows(self, query: str, **named: object) -> Sequence[Row]:
        with looking(self._database) as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(self._sql[query], named).fetchall()
