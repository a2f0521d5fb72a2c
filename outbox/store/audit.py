"""Writes, reads and prunes the audit. Decides nothing; the chain of hashes is PostgreSQL's own work (0009)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import orjson
from psycopg import Connection
from psycopg.rows import dict_row

from outbox.policy.audit import AuditPrunePreview, AuditPruneStep, Entry, Link, PruneOrder
from outbox.policy.inputs import AuditFilter, parameters
from outbox.store.pool import TopicStore, bounded_read, fetch_rows
from outbox.store.queries import queries

_ROWS_A_FETCH: Final = 2_000

Row = Mapping[str, Any]


def write(connection: Connection[Any], entries: Sequence[Entry]) -> None:
    """One statement, one lock on the chain, whatever their number. The last thing that a transaction does."""
    if not entries:
        return
    named = {
        "actions": [e.action for e in entries],
        "actors": [e.actor.name for e in entries],
        "sources": [e.actor.source for e in entries],
        "roles": [e.actor.role for e in entries],
        "reasons": [e.reason for e in entries],
        "batches": [e.batch_id for e in entries],
        "events": [e.event_id for e in entries],
        "types": [e.entity_type for e in entries],
        "entities": [e.entity_id for e in entries],
        "traces": [e.trace_id for e in entries],
        "details": [None if e.detail is None else orjson.dumps(e.detail, default=str).decode() for e in entries],
    }
    connection.execute(queries("audit")["write"], named)


class PostgresAudit(TopicStore, topic="audit"):
    def write(self, entries: Sequence[Entry]) -> None:
        """For an act that changes nothing in PostgreSQL itself."""
        with self._database.transaction() as connection:
            write(connection, entries)

    def page(self, asked: AuditFilter, before: int, limit: int) -> Sequence[Row]:
        named = {"before": before, "limit": limit, **parameters(asked)}
        with bounded_read(self._database) as connection:
            return fetch_rows(connection, self._sql["page"], named)

    def count(self, asked: AuditFilter, most: int) -> int:
        named = {"max_id": self.head_id(), "most": most, **parameters(asked)}
        with bounded_read(self._database) as connection:
            row = connection.execute(self._sql["count"], named).fetchone()
            return int(row[0]) if row else 0

    def rows(self, asked: AuditFilter, max_id: int) -> Iterator[Row]:
        """All that match, oldest first, some at a time: memory stays flat, and whoever reads slowly or not at all holds
        neither a connection nor an old snapshot. What a prune removes meanwhile is left out."""
        after = 0
        while True:
            named = {"after": after, "max_id": max_id, "limit": _ROWS_A_FETCH, **parameters(asked)}
            with self._database.transaction(read_only=True) as connection:
                rows = fetch_rows(connection, self._sql["export"], named)
            yield from rows
            if len(rows) < _ROWS_A_FETCH:
                return
            after = rows[-1]["id"]

    def chain(self) -> Iterator[Link]:
        """The head, then every place in order, all from one snapshot."""
        with (
            self._database.transaction(read_only=True) as connection,
            connection.cursor(name=f"audit_{uuid4().hex[:8]}", row_factory=dict_row) as cursor,
        ):
            cursor.execute(self._sql["chain"])
            while rows := cursor.fetchmany(_ROWS_A_FETCH):
                for row in rows:
                    yield Link(row["id"], row["hash"] or b"", row["prev_hash"], row["text"], row["first"])

    def head_id(self) -> int:
        return int(self._value("head"))

    def cutoff(self, seconds: float) -> datetime:
        found: datetime = self._value("cutoff", seconds=seconds)
        return found

    def prune_preview(self, asked: AuditFilter, before: datetime, max_id: int) -> AuditPrunePreview:
        with self._database.transaction(read_only=True) as connection:
            named = {"before": before, "max_id": max_id, **parameters(asked)}
            row = connection.execute(self._sql["prune_preview"], named).fetchone()
            return AuditPrunePreview(*row) if row else AuditPrunePreview(0, None, None)

    def prune_step(self, asked: AuditFilter, order: PruneOrder, after: int, limit: int) -> AuditPruneStep:
        """One transaction: the rows and the one that says who removed them go in together."""
        named = {
            **asdict(asked),
            "before": order.before if asked.until is None else min(order.before, asked.until),
            "after": after,
            "max_id": order.max_id,
            "limit": limit,
            "by": order.actor.name,
            "role": order.actor.role,
            "source": order.actor.source,
            "reason": order.reason,
            "archived": order.archived,
        }
        row = self._one("prune_step", **named)
        removed, last = row or (0, None)
        return AuditPruneStep(removed, last if last is not None else after)
