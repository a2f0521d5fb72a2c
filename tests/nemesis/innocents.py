"""Owns the innocent load of the lane of the neighbours: one steady pace, one statement per event, nothing wrong in it.

It knows what every document must be in the end, and judges nothing.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
from elasticsearch import Elasticsearch

from labs.ledger import digest
from labs.producing import CANARY

PLAIN, VIEWED = "plain", "viewed"
ENTITIES = 400
PAGE = 200

# The version is drawn while the row is locked; one thread writes, so commits are in its order.
KEEP: LiteralString = """
with kept as (
    insert into plain (id, title, content, revision) values (%(id)s, %(title)s, %(content)s, %(revision)s)
    on conflict (id) do update set content = excluded.content, revision = excluded.revision
    returning *)
insert into search_outbox_events (entity_type, entity_id, op, routing, payload)
select 'plain', id::text, 'upsert', %(routing)s,
       json_build_object('title', title, 'content', content, 'revision', revision) from kept
"""
REMOVE: LiteralString = """
with gone as (delete from plain where id = %(id)s returning id)
insert into search_outbox_events (entity_type, entity_id, op, routing)
select 'plain', id::text, 'delete', %(routing)s from gone
"""
REFRESH: LiteralString = """
with kept as (
    insert into viewed (id, title, content, revision) values (%(id)s, %(title)s, %(content)s, %(revision)s)
    on conflict (id) do update set content = excluded.content, revision = excluded.revision
    returning *)
insert into search_outbox_events (entity_type, entity_id, op, routing)
select 'viewed', id::text, 'refresh', %(routing)s from kept
"""


class Innocents:
    """One thread. Six in ten are upserts with a payload, one a delete, three refreshes."""

    def __init__(self, database_url: str, seed: int, rate: float, routing: str) -> None:
        self._url = database_url
        self._dice = random.Random(f"{seed}:innocents")
        self._rate = rate
        self._routing = routing
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._expected: dict[tuple[str, int], str] = {}  # the digest of each document; empty = gone
        self.committed = 0
        self.late = 0  # events that this machine could not commit at their time
        self.problem: str | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._work, name="innocents", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(20)

    def _work(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                due = time.monotonic()
                while not self._stop.wait(max(0.0, due - time.monotonic())):
                    self._commit(connection)
                    due += 1 / self._rate
                    if due < time.monotonic() - 1:  # what was missed is not made up for: that would be a flood
                        self.late += 1
                        due = time.monotonic()
        except psycopg.Error as error:
            self.problem = f"the innocent load broke off: {type(error).__name__}: {error}"

    def _commit(self, connection: psycopg.Connection[Any]) -> None:
        dice, id = self._dice.random(), self._dice.randrange(1, ENTITIES + 1)
        number = self._dice.randrange(1_000_000)
        content = f"{CANARY} Größe {self._dice.randbytes(self._dice.choice((20, 200))).hex()}"
        document = {"title": f"innocent {id}", "content": content, "revision": number}
        statement, kind = (KEEP, PLAIN) if dice < 0.6 else (REMOVE, PLAIN) if dice < 0.7 else (REFRESH, VIEWED)
        done = connection.execute(statement, {**document, "id": id, "routing": self._routing})
        if done.rowcount == 1:  # else there was nothing to delete
            self._expected[kind, id] = "" if statement == REMOVE else digest(document)
            self.committed += 1

    def wrong(self, elastic: Elasticsearch, index: str) -> Iterator[str]:
        """Documents that are not what was committed last."""
        keys = list(self._expected)
        for start in range(0, len(keys), PAGE):
            part = keys[start : start + PAGE]
            asked = [{"_id": f"{kind}:{id}", "routing": self._routing} for kind, id in part]
            docs = elastic.mget(index=index, docs=asked)["docs"]
            for key, doc in zip(part, docs, strict=True):
                if (digest(doc["_source"]) if doc.get("found") else "") != self._expected[key]:
                    yield str(doc["_id"])

    @property
    def documents(self) -> int:
        return len(self._expected)
