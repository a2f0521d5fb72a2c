"""Stores what operators say to the daemons: pauses and lifted brakes, each with its audit row. Tells no daemon."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from psycopg.rows import dict_row

from outbox.policy.audit import Action, Actor, Entry
from outbox.store import audit
from outbox.store.pool import Database
from outbox.store.queries import queries
from outbox.store.schema.state import has_by_type

Row = Mapping[str, Any]


class PostgresControls:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("controls")

    def can_pause_a_type(self) -> bool:
        """Whether the indexes are there without which daemons cannot claim around one type."""
        with self._database.connection() as connection:
            return has_by_type(connection)

    def put(self, scope: str, kind: str, actor: Actor, reason: str, lasts: timedelta | None = None) -> Row:
        named = {"scope": scope, "kind": kind, "by": actor.name, "reason": reason, "lasts": lasts}
        action = Action.PAUSED if kind == "pause" else Action.RESUMED
        row = self._act("put_control", named, Entry(action, actor, reason, detail={"scope": scope, "kind": kind}))
        assert row is not None
        return row

    def take_back(self, scope: str, actor: Actor, reason: str) -> Row | None:
        entry = Entry(Action.RESUMED, actor, reason, detail={"scope": scope, "kind": "pause"})
        return self._act("take_control_back", {"scope": scope}, entry)

    def _act(self, query: str, named: Mapping[str, object], entry: Entry) -> Row | None:
        """The word and its audit row stand or fall together; what changed nothing is not audited."""
        with self._database.transaction() as connection:
            with connection.cursor(row_factory=dict_row) as cursor:
                row = cursor.execute(self._sql[query], named).fetchone()
            if row is not None:
                audit.write(connection, [entry])
            return row
