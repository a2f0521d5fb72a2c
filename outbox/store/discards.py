"""Discards events, one or all that match, with their audit rows in the same transaction. Deletes no row."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from outbox.facts import EventDiscarded
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.filter import EventFilter, given
from outbox.store import audit
from outbox.store.events import entity_id_type
from outbox.store.filters import event_where
from outbox.store.pool import Database
from outbox.store.queries import queries

Row = Mapping[str, Any]


class PostgresDiscards:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("discards")

    def discard(self, id: UUID, actor: Actor, reason: str) -> Row | str | None:
        """The row that was discarded; its state when it cannot be; None when nobody knows it."""
        with self._database.transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(self._sql["discard"], {"id": id}).fetchone()
            if row is not None:
                audit.write(connection, [_entry(row, actor, reason, None)])
                return row
            found = cursor.execute(self._sql["status"], {"id": id}).fetchone()
            return None if found is None else str(found["status"])

    def tell(self, limit: int) -> Sequence[EventDiscarded]:
        """What has been discarded since some daemon last told; each event to one caller alone."""
        with self._database.connection() as connection:
            rows = connection.execute(self._sql["tell"], {"limit": limit}).fetchall()
            return [
                EventDiscarded(id, kind, entity, by or "", why or "", batch)
                for id, kind, entity, by, why, batch in rows
            ]

    def flush(
        self, batch_id: UUID, asked: EventFilter, expect: int, actor: Actor, reason: str, approved_by: str
    ) -> int:
        """How many match, counted up to one more than expected. They are discarded only if it is what was expected."""
        with self._database.transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
            where = event_where(asked, "failed_at", entity_id_type(connection))
            named = {"limit": expect + 1, **where.parameters}
            ids = [row["id"] for row in cursor.execute(where.into(self._sql["hold_matching"]), named).fetchall()]
            if len(ids) != expect:
                return len(ids)
            rows = cursor.execute(self._sql["discard_held"], {"ids": ids}).fetchall()
            detail = {"discarded": len(rows), "filter": given(asked), "approved_by": approved_by}
            summary = Entry(Action.FLUSH_SUMMARY, actor, reason, batch_id, detail=detail)
            audit.write(connection, [*(_entry(row, actor, reason, batch_id) for row in rows), summary])
            return len(rows)


def _entry(row: Row, actor: Actor, reason: str, batch_id: UUID | None) -> Entry:
    about = (row["id"], row["entity_type"], row["entity_id"], row["trace_id"])
    detail = {"error_reason": row["error_reason"]} if row["error_reason"] else None
    return Entry(Action.EVENT_DISCARDED, actor, reason, batch_id, *about, detail)
