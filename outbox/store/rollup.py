"""Adds counts to `search_outbox_rollup`. Counts nothing itself and reads nothing back."""

from collections.abc import Mapping

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
