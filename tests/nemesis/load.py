"""Owns the load: business rows and their events in one transaction, at a pace, noted in a ledger of its own."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from typing import Any, ClassVar, LiteralString

import psycopg

from labs.ledger import Ledger, LedgerEntry, digest
from labs.producing import CANARY, time_ordered_id
from tests.nemesis.joined import ASK, REFRESH, Pairs
from tests.nemesis.parts import DRAFTS, PARTS
from tests.nemesis.recipe import Recipe
from tests.nemesis.schedule import KINDS

ENTITIES = 1_500
HOT = 12
THREADS = 4
BAD_ONE_IN = 150  # events whose document the mapping refuses, until someone fixes it and replays

# The lock comes first, in a statement of its own: so the versions of an entity grow in the order of its commits.
LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 7))"
KEEP: LiteralString = """
insert into nemesis_rows (id, document, version)
values (%(id)s, %(document)s, nextval('search_outbox_version'))
on conflict (id) do update set document = excluded.document, version = excluded.version
returning version
"""
REMOVE: LiteralString = "delete from nemesis_rows where id = %(id)s returning nextval('search_outbox_version')"
EVENT: LiteralString = """
insert into search_outbox_events (id, entity_type, entity_id, op, event_version, payload)
values (%(event)s, %(kind)s, %(id)s, %(op)s, %(version)s, %(payload)s)
"""
DRAFT = "draft"


def is_bad(event_id: str) -> bool:
    """Known by its id alone, so that whoever judges knows it too."""
    return uuid.UUID(event_id).int % BAD_ONE_IN == 0


class Producer:
    """Threads at a common pace. Lost connections are made again; a commit without an answer is noted as unknown."""

    ENTITIES: ClassVar[int] = ENTITIES

    def __init__(self, database_url: str, ledger: Ledger, seed: int, rate: float, recipe: Recipe) -> None:
        into: LiteralString = "search_outbox_log" if recipe.has("kafka") else "search_outbox_events"
        whose: LiteralString = "nemesis_version" if recipe.has("producer-versions") else "search_outbox_version"
        self._event = EVENT.replace("search_outbox_events", into)
        self._keep, self._remove = (text.replace("search_outbox_version", whose) for text in (KEEP, REMOVE))
        self._url = database_url
        self._ledger = ledger
        self._seed = seed
        self._rate = rate
        self._ids = recipe.ids
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._taken = 0
        self._began = 0.0
        self._refused = 0
        self.pairs = {name: PARTS[name].pairs(ledger, self._ids) for name in recipe.parts if name != "drafts"}
        self._parts = [(share, PARTS[name].events, self.pairs.get(name)) for name, share in recipe.weights.items()]
        self.drafting = threading.Lock()  # of who says by what drafts are kept
        self.drafts_moved = False

    @property
    def refused(self) -> int:
        """Attempts that surely did not commit."""
        return self._refused + sum(pairs.refused for pairs in self.pairs.values())

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
            events, part = self._next(dice.random())
            if self._stop.wait(self._due(events) - time.monotonic()):
                return
            if isinstance(part, Pairs):
                part.commit((connection, beside), dice)
            elif part == DRAFT:
                with self.drafting:
                    self._commit(connection, self._draft(dice))
            else:
                self._commit(connection, self._row(dice))

    def _next(self, number: float) -> tuple[int, Pairs | str]:
        """How many events the next act has, and whose it is."""
        for share, events, pairs in self._parts:
            if number < share:
                return events, pairs or DRAFT
            number -= share
        return 1, ""

    def _due(self, events: int) -> float:
        """What fell due while the database was down is not made up for: a producer waits with its database."""
        with self._lock:
            self._taken += events
            due = self._began + self._taken / self._rate
            if due < time.monotonic() - 1:
                self._began = time.monotonic() - self._taken / self._rate
            return due

    def _row(self, dice: random.Random) -> dict[str, Any]:
        n = dice.randrange(HOT) if dice.random() < 0.15 else dice.randrange(self.ENTITIES)
        return self._wish(f"e{n}", KINDS[n % 2], dice)

    def _draft(self, dice: random.Random) -> dict[str, Any]:
        return self._wish(f"d{dice.randrange(DRAFTS)}", DRAFT, dice)

    def _wish(self, name: str, kind: str, dice: random.Random) -> dict[str, Any]:
        """What to write: a document, or None for a delete."""
        id = self._ids.typed(name)
        wish = {"id": id, "kind": kind, "event": self._event_id(f"{kind}:{id}")}
        gone = dice.random() < 0.15
        return {**wish, "document": None if gone else _document(wish, dice)}

    def _event_id(self, document: str) -> uuid.UUID:
        return time_ordered_id()

    def _commit(self, connection: psycopg.Connection[Any], wish: dict[str, Any]) -> None:
        try:
            entry = self._write(connection, wish)
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

    def _write(self, connection: psycopg.Connection[Any], wish: dict[str, Any]) -> LedgerEntry | None:
        connection.execute(LOCK, [wish["id"]])
        document, kind, text = wish["document"], wish["kind"], json.dumps(wish["document"])
        statement = self._remove if document is None else self._keep
        if kind == DRAFT:
            statement = statement.replace("nemesis_rows", "nemesis_drafts")
        row = connection.execute(statement, {**wish, "document": text}).fetchone()
        if row is None:
            return None  # nothing there to delete
        if kind == DRAFT and self.drafts_moved:
            asked = connection.execute(ASK, [kind, wish["id"]]).fetchone()
            assert asked is not None
            return LedgerEntry(asked[0], kind, wish["id"], REFRESH, 0, "", time.time())
        op, version = ("delete" if document is None else "upsert"), int(row[0])
        payload = None if document is None else text
        connection.execute(self._event, {**wish, "op": op, "version": version, "payload": payload})
        body = digest(document) if document else ""
        return LedgerEntry(str(wish["event"]), kind, wish["id"], op, version, body, time.time())


def _document(wish: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    revision: Any = "no number" if is_bad(str(wish["event"])) else dice.randrange(1_000_000)
    filler = dice.randbytes(dice.choice((20, 120, 400))).hex()
    return {"title": f"{wish['id']}", "kind": wish["kind"], "revision": revision, "content": f"{CANARY} {filler}"}
