"""Reads what the view of documents reads, and what is said of that: attachments, audited exceptions. Judges nothing."""

from typing import Any

from psycopg import Connection, sql

from outbox.policy.coverage import Coverage, IgnoredTable, OpenAttachment, ReadTable, missing_ways
from outbox.policy.derive.derivation import Derivation
from outbox.store.attach.from_view import derived
from outbox.store.pool import Database, bounded_read, fetch_rows
from outbox.store.queries import queries


class PostgresCoverage:
    def __init__(self, database: Database, view: str) -> None:
        self._database = database
        self.view = view
        self._known: tuple[object, Derivation] = (None, Derivation())

    def read(self) -> Coverage:
        """6 ms for a view over ten tables; every call reads the catalogue anew, because a view may be replaced."""
        asked = queries("coverage")
        with bounded_read(self._database) as connection:
            name = sql.Identifier(*self.view.split(".")).as_string(connection)
            rows = fetch_rows(connection, asked["coverage"], {"view": name})
            use = fetch_rows(connection, asked["is_in_use"])[0]
            said = fetch_rows(connection, asked["ignored"])
            there = [OpenAttachment(**row) for row in fetch_rows(connection, asked["open_attachments"])]
            made = ([row.pop("made") for row in rows], [(row["table"], row["columns"]) for row in said])
            missing = missing_ways(self._needed(connection, made), there) if there else []
        return Coverage(
            [ReadTable(**row | {"uncovered": tuple(row["uncovered"])}) for row in rows],
            missing,
            [IgnoredTable(**row | {"columns": tuple(row["columns"])}) for row in said],
            **use,
        )

    def _needed(self, connection: Connection[Any], made: object) -> Derivation:
        """Derived again only when the view is another: 40 ms for ten tables, and every page asks."""
        if self._known[0] != made:
            self._known = (made, derived(connection, self.view))
        return self._known[1]

    def forgotten(self) -> list[str]:
        return [each.shown for each in self.read().forgotten]
