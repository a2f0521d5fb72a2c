"""Writes what people do to the queue, each act with its audit row: pauses, discards, events that they ask for.

Deletes no row, tells no daemon, chooses no version.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from outbox.facts import EventDiscarded
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.inputs import EventFilter, given
from outbox.policy.repair_event import RepairEvent, Reprojection
from outbox.store import audit
from outbox.store.filters import event_filter
from outbox.store.pool import TopicStore, fetch_row
from outbox.store.schema.state import has_by_type

Row = Mapping[str, Any]


class PostgresDiscards(TopicStore, topic="discards"):
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
        """What has been discarded since a daemon last reported; each event to one caller alone."""
        rows = self._all("tell", limit=limit)
        return [
            EventDiscarded(id, kind, entity, by or "", why or "", batch) for id, kind, entity, by, why, batch in rows
        ]

    def flush(
        self, batch_id: UUID, asked: EventFilter, expect: int, actor: Actor, reason: str, approved_by: str
    ) -> int:
        """How many match, counted up to one more than expected. They are discarded only if it is what was expected."""
        with self._database.transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
            named = {"limit": expect + 1, **event_filter(connection, asked)}
            ids = [row["id"] for row in cursor.execute(self._sql["hold_matching"], named).fetchall()]
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


class PostgresControls(TopicStore, topic="controls"):
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
        """The control and its audit row are written together; what changed nothing is not audited."""
        with self._database.transaction() as connection:
            row = fetch_row(connection, self._sql[query], named)
            if row is not None:
                audit.write(connection, [entry])
            return row


class PostgresEventWriter(TopicStore, topic="requests"):
    def ask(self, asked: Reprojection, entry: Callable[[UUID, int], Entry]) -> tuple[UUID, int]:
        named = asdict(asked) | {"payload": asked.text}
        with self._database.transaction() as connection:
            row = connection.execute(self._typed("ask", connection), named).fetchone()
            assert row is not None
            id, version = row
            audit.write(connection, [entry(id, version)])
            return id, version

    def refresh(self, entity_type: str, ids: Sequence[str], entry: Entry) -> int:
        return self._write("refresh", {"entity_type": entity_type, "ids": list(ids)}, entry)

    def repair(self, batch: UUID, first: int, events: Sequence[RepairEvent], entry: Entry) -> int:
        """How many were written. `first` is the number of the first of them in the whole repair."""
        named = {
            "types": [event.key.entity_type for event in events],
            "ids": [event.key.entity_id for event in events],
            "ops": [event.op for event in events],
            "versions": [event.version for event in events],
            "payloads": [event.text for event in events],
            "routings": [event.routing for event in events],
            "keys": [f"repair:{batch}:{first + place}" for place in range(len(events))],
        }
        return self._write("repair", named, entry)

    def _write(self, query: str, named: Mapping[str, object], entry: Entry) -> int:
        with self._database.transaction() as connection:
            written = connection.execute(self._typed(query, connection), named).rowcount
            audit.write(connection, [entry])
            return written
