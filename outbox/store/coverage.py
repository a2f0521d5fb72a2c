"""Reads what the view of documents reads, and what is said of that: attachments, audited exceptions. Judges nothing."""

from typing import Any

from psycopg import Connection, sql

from outbox.policy.coverage import Coverage, IgnoredTable, OpenAttachment, ReadTable, missing_ways
from outbox.store.attach.from_view import derived
from outbox.store.pool import Database, bounded_read, fetch_rows
from outbox.store.queries import queries


class PostgresCoverage:
    def __init__(self, database: Database, view: str) -> None:
        self._database = database
        self.view = view

    def read(self) -> Coverage:
        """2 ms for a view over ten tables; every call reads the catalogue anew, because a view may be replaced."""
        with bounded_read(self._database) as connection:
            return read_coverage(connection, self.view)

    def forgotten(self) -> list[str]:
        return [each.shown for each in self.read().forgotten]


def read_coverage(connection: Connection[Any], view: str) -> Coverage:
    asked = queries("coverage")
    name = sql.Identifier(*view.split(".")).as_string(connection)
    rows = fetch_rows(connection, asked["coverage"], {"view": name})
    use = fetch_rows(connection, asked["is_in_use"])[0]
    said = fetch_rows(connection, asked["ignored"])
    there = [OpenAttachment(**row) for row in fetch_rows(connection, asked["open_attachments"])]
    return Coverage(
        [ReadTable(**row | {"uncovered": tuple(row["uncovered"])}) for row in rows],
        missing_ways(derived(connection, view), there),
        [IgnoredTable(**row | {"columns": tuple(row["columns"])}) for row in said],
        **use,
    )
