"""Adds counts to `search_outbox_rollup`, and reads the last minutes of it. Counts nothing itself."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from outbox.store.pool import Database
from outbox.store.queries import queries

Key = tuple[str, str, str]  # entity type, outcome, reason


class PostgresRollup:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("rollup")

    def add(self, counts: Mapping[Key, int]) -> None:
        """One statement for all of them, whatever their number."""
        entity_types, outcomes, reasons = (list(column) for column in zip(*counts, strict=True))
        named = {
            "entity_types": entity_types,
            "outcomes": outcomes,
            "reasons": reasons,
            "counts": list(counts.values()),
        }
        with self._database.connection() as connection:
            connection.execute(self._sql["add_counts"], named)


READ_LIMIT_MS: Final = 3_000


class PostgresPulse:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("pulse")

    def minutes(self, window: timedelta) -> Sequence[tuple[str, datetime, int]]:
        with self._database.transaction(read_only=True, timeout_ms=READ_LIMIT_MS) as connection:
            return connection.execute(self._sql["minutes"], {"window": window}).fetchall()
