"""Owns the load: business rows and their events in one transaction, at a pace, noted in a ledger of its own."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from typing import Any, LiteralString

import psycopg

from labs.ledger import Ledger, LedgerEntry, digest
from labs.producing import CANARY, time_ordered_id
from tests.nemesis import joined, linked, routed
from tests.nemesis.joined import Pairs

ENTITIES = 1_500
HOT = 12
THREADS = 4
KINDS = ("page", "block")
BAD_ONE_IN = 150  # events whose document the mapping refuses, until someone fixes it and replays

# The lock comes first, in a statement of its own: so the versions of an entity grow in the order of its commits.
LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 7))"
KEEP = """
insert into nemesis_rows (id, document, version)
values (%(id)s, %(document)s, nextval('search_outbox_version'))
on conflict (id) do update set document = excluded.document, version = excluded.version
returning version
"""
REMOVE = "delete from nemesis_rows where id = %(id)s returning nextval('search_outbox_version')"
EVENT: LiteralString = """
insert into search_outbox_events (id, entity_type, entity_id, op, event_version, payload)
values (%(event)s, %(kind)s, %(id)s, %(op)s, %(version)s, %(payload)s)
"""


INTO: dict[str, LiteralString] = {
    "search_outbox_events": EVENT,
    "search_outbox_log": EVENT.replace("search_outbox_events", "search_outbox_log"),
}


def is_bad(event_id: str) -> bool:
    """Known by its id alone, so that whoever judges knows it too."""
    return uuid.UUID(event_id).int % BAD_ONE_IN == 0


class Producer:
    """Threads at a common pace. Lost connections are made again; a commit without an answer is noted as unknown."""

    def __init__(
        self, database_url: str, ledger: Ledger, seed: int, rate: float, table: str = "search_outbox_events"
    ) -> None:
        self._event = INTO[table]
        self._url = database_url
        self._ledger = ledger
        self._seed = seed
        self._rate = rate
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._taken = 0
        self._began = 0.0
        self._refused = 0
        self.joined = Pairs(ledger)
        self.routed = Pairs(ledger, routed.KIND, routed.name, routed.FIRST, routed.SECOND)
        self.linked = linked.pairs(ledger)
        parts = ((joined, self.joined), (routed, self.routed), (linked, self.linked))
        self._parts = [(part.SHARE_OF_ACTS, part.EVENTS, pairs) for part, pairs in parts]

    @property
    def refused(self) -> int:
        """Attempts that surely did not commit."""
        return self._refused + self.joined.refused + self.routed.refused + self.linked.refused

    def start(self) -> None:
        self._began, self._taken = time.monotonic(), 0
        self._stop.clear()
        self._threads = [
            threading.Thread(target=self._work, args=(n,), name=f"load-{n}", daemon=True) for n in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _work(self, number: int) -> None:
        dice = random.Random(f"{self._seed}:{number}")
        while not self._stop.is_set():
            try:
                with self._connect() as connection, self._connect() as beside:
                    self._go_on(connection, beside, dice)
            except psycopg.Error:
                self._stop.wait(0.2)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._url, connect_timeout=3)

    def _go_on(self, connection: psycopg.Connection[Any], beside: psycopg.Connection[Any], dice: random.Random) -> None:
        while True:
            events, pairs = self._next(dice.random())
            if self._stop.wait(self._due(events) - time.monotonic()):
                return
            if pairs:
                pairs.commit((connection, beside), dice)
            else:
                self._commit(connection, dice)

    def _next(self, number: float) -> tuple[int, Pairs | None]:
        """How many events the next act has, and whose it is; None: a single event."""
        for share, events, pairs in self._parts:
            if number < share:
                return events, pairs
            number -= share
        return 1, None

    def _due(self, events: int) -> float:
        """What fell due while the database was down is not made up for: a producer waits with its database."""
        with self._lock:
            self._taken += events
            due = self._began + self._taken / self._rate
            if due < time.monotonic() - 1:
                self._began = time.monotonic() - self._taken / self._rate
            return due

    def _commit(self, connection: psycopg.Connection[Any], dice: random.Random) -> None:
        entity = f"e{dice.randrange(HOT) if dice.random() < 0.15 else dice.randrange(ENTITIES)}"
        wish = {"id": entity, "kind": KINDS[int(entity[1:]) % 2], "event": time_ordered_id()}
        gone = dice.random() < 0.15
        try:
            entry = self._write(connection, {**wish, "gone": gone}, dice)
        except psycopg.Error:
            self._refused += 1  # COMMIT was not sent
            raise
        if entry is None:
            connection.rollback()
            return
        try:
            connection.commit()
        except psycopg.Error:
            self._ledger.add(entry.unanswered())
            raise
        self._ledger.add(entry)

    def _write(
        self, connection: psycopg.Connection[Any], wish: dict[str, Any], dice: random.Random
    ) -> LedgerEntry | None:
        connection.execute(LOCK, [wish["id"]])
        document = None if wish["gone"] else _document(wish, dice)
        text = json.dumps(document)
        row = connection.execute(REMOVE if wish["gone"] else KEEP, {**wish, "document": text}).fetchone()
        if row is None:
            return None  # nothing there to delete
        op, version = ("delete" if wish["gone"] else "upsert"), int(row[0])
        payload = None if document is None else text
        connection.execute(self._event, {**wish, "op": op, "version": version, "payload": payload})
        body = digest(document) if document else ""
        return LedgerEntry(str(wish["event"]), wish["kind"], wish["id"], op, version, body, time.time())


def _document(wish: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    revision: Any = "no number" if is_bad(str(wish["event"])) else dice.randrange(1_000_000)
    filler = dice.randbytes(dice.choice((20, 120, 400))).hex()
    return {"title": f"{wish['id']}", "kind": wish["kind"], "revision": revision, "content": f"{CANARY} {filler}"}
