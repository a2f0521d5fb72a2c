"""Queries and inserts of a lab on its outbox table, without proxies. It knows no daemon."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from labs.ledger import Ledger, LedgerEntry, digest
from labs.producing import CANARY, ENTITY_TYPE, time_ordered_id

BURST: LiteralString = """
insert into search_outbox_events (entity_type, entity_id, op, payload)
select 'block', gen_random_uuid()::text, 'upsert',
       (jsonb_build_object('title', 'block ' || g, 'content', %(mark)s || repeat(' x', 80), 'revision', g)
        || %(more)s::jsonb)::json
  from generate_series(1, %(n)s) g
returning id, entity_id, event_version, payload::text
"""
INSERT = sql.SQL("insert into search_outbox_events ({}) values ({}) returning event_version")


@dataclass
class Table:
    database_url: str
    ledger: Ledger

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=10) as connection:
            yield connection

    def rows(self, query: LiteralString, **values: Any) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: LiteralString, **values: Any) -> Any:
        rows = self.rows(query, **values)
        return rows[0][0] if rows else None

    def count(self, where: LiteralString, **values: Any) -> int:
        return int(self.value("select count(*) from search_outbox_events where " + where, **values))

    def insert(
        self,
        entity_id: str,
        op: str = "upsert",
        payload: Mapping[str, Any] | None = None,
        version: int | None = None,
        entity_type: str = "block",
        **columns: Any,
    ) -> str:
        """Insert one event, also into the ledger; returns its id."""
        event = str(time_ordered_id())
        given = {"id": event, "entity_type": entity_type, "entity_id": entity_id, "op": op, **columns}
        if payload is not None:
            given["payload"] = json.dumps(payload)
        if version is not None:
            given["event_version"] = version
        drawn = self._insert(given)
        body = digest(payload) if payload is not None else ""
        self.ledger.add(LedgerEntry(event, entity_type, entity_id, op, drawn, body, time.time()))
        return event

    def burst(self, n: int, more: Mapping[str, Any] | None = None) -> list[str]:
        """Insert `n` upserts of new entities in one statement; `more` goes into every document. Returns their ids."""
        with self.connect() as connection:
            rows = connection.execute(BURST, {"n": n, "more": json.dumps(more or {}), "mark": CANARY}).fetchall()
        for id, entity_id, version, payload in rows:
            body = digest(json.loads(payload))
            self.ledger.add(LedgerEntry(str(id), ENTITY_TYPE, entity_id, "upsert", version, body, time.time()))
        return [str(row[0]) for row in rows]

    def _insert(self, columns: Mapping[str, Any]) -> int:
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        values = sql.SQL(", ").join(map(sql.Placeholder, columns))
        with self.connect() as connection:
            row = connection.execute(INSERT.format(names, values), dict(columns)).fetchone()
        assert row is not None
        return int(row[0])
