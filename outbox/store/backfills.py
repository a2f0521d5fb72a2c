"""Keeps backfills of the index in use: who works on one, how far it is, what was refused. Copies nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from psycopg.rows import dict_row

from outbox.policy.audit import Entry
from outbox.policy.backfill import BackfillRun
from outbox.ports import Refusal
from outbox.store import audit
from outbox.store.pool import Database
from outbox.store.queries import queries
from outbox.store.rebuilds import LEASE


class PostgresBackfills:
    """`owner` names this process; its lease keeps others away."""

    def __init__(self, database: Database, *, owner: str) -> None:
        self._database = database
        self._me = {"owner": owner, "lease": LEASE}
        self._sql = queries("backfills")

    def begin(self, dead_owner: str | None, **about: object) -> BackfillRun | None:
        """None: another one is at work."""
        return self._one("begin", {**about, "dead_owner": dead_owner})

    def newest(self) -> BackfillRun | None:
        return self._one("newest", {})

    def take(self, id: int, dead_owner: str | None) -> BackfillRun | None:
        """None: a living process works on it."""
        return self._one("take", {"id": id, "dead_owner": dead_owner})

    def wrote_page(
        self, id: int, cursor: Mapping[str, Any] | None, written: int, newer: int, refusals: Sequence[Refusal]
    ) -> bool:
        """False: someone else has taken it over."""
        named: dict[str, object] = {**self._me, "id": id, "written": written, "newer": newer, "refused": len(refusals)}
        named["cursor"] = None if cursor is None else orjson.dumps(cursor).decode()
        named["refusals"] = orjson.dumps([refusal._asdict() for refusal in refusals[:100]]).decode()
        with self._database.connection() as connection:
            return connection.execute(self._sql["wrote_page"], named).fetchone() is not None

    def end(self, id: int, status: str, error: str | None = None, entries: Sequence[Entry] = ()) -> None:
        with self._database.transaction() as connection:
            connection.execute(self._sql["end"], {**self._me, "id": id, "status": status, "error": error})
            audit.write(connection, entries)

    def _one(self, query: str, named: Mapping[str, object]) -> BackfillRun | None:
        with self._database.transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(self._sql[query], {**self._me, **named}).fetchone()
        if row is None:
            return None
        parsed = {name: None if row[name] is None else orjson.loads(row[name]) for name in ("cursor", "refusals")}
        return BackfillRun(**{**row, **parsed, "entity_types": tuple(row["entity_types"])})
