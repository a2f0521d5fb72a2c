"""Reads what was finished in the last minutes, by entity type. Changes nothing."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from outbox.store.pool import Database
from outbox.store.queries import queries

READ_LIMIT_MS: Final = 3_000


class PostgresPulse:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("pulse")

    def minutes(self, window: timedelta) -> Sequence[tuple[str, datetime, int]]:
        with self._database.transaction(read_only=True, timeout_ms=READ_LIMIT_MS) as connection:
            return connection.execute(self._sql["minutes"], {"window": window}).fetchall()
