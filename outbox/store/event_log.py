"""Keeps the days of the event log (`search_outbox_log`), and reads how far the connector has captured it."""

from datetime import timedelta
from typing import Final

from outbox.ports import Captured
from outbox.store.pool import Database, TopicStore

DAYS_AHEAD: Final = 7
"""As sql/optional/log.sql makes them: for so long may no daemon run before rows go to the default partition."""


class PostgresEventLog(TopicStore, topic="event_log"):
    def __init__(self, database: Database, *, forget: bool) -> None:
        """`forget`: False keeps every day."""
        super().__init__(database)
        self._forget = forget

    def keep(self, age: timedelta, most: int) -> int:
        """The days and rows that went; 0 where the log is not installed, or not this role's to keep (`outbox doctor`
        says so). Dropping loses nothing: what the connector has not read is kept by its slot."""
        with self._database.connection() as connection:
            if connection.execute(self._sql["is_there"]).fetchone() != (True,):
                return 0
            connection.execute(self._sql["make_days"], {"ahead": DAYS_AHEAD})
            if not self._forget:
                return 0
            row = connection.execute(self._sql["prune"], {"keep": age, "most": most}).fetchone()
            return int(row[0]) if row else 0


class PostgresCapture(TopicStore, topic="event_log"):
    """The connector's replication slot."""

    def __init__(self, database: Database, slot: str) -> None:
        super().__init__(database)
        self.slot = slot

    def read(self) -> Captured | None:
        """None: this database has no such slot, or is a standby."""
        row = self._row("captured", slot=self.slot)
        return Captured(**row) if row else None
