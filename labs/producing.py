"""Writes business rows with their events, each in one statement, at a given rate. It reads no environment."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from labs.ledger import Ledger, LedgerEntry, digest

SCENARIOS = ("create", "update", "mixed", "hot-key", "delete-heavy")
ENTITY_TYPE = "block"
UPDATED = 50  # entities that `update` and `mixed` change repeatedly
CANARY = "canary-9f2756b9"  # in every document; must never be in a log

TABLE = """
create table if not exists load_blocks (
    id uuid primary key, content text not null, revision bigint not null default 1)
"""
EVENTS, LOG = "search_outbox_events", "search_outbox_log"
# The version is drawn while the row is locked, so the versions of one entity increase in the order of the commits.
UPSERT = """
with written as (
    insert into load_blocks (id, content) values (%(entity)s, %(content)s)
    on conflict (id) do update set content = excluded.content, revision = load_blocks.revision + 1
    returning id, content, revision)
insert into search_outbox_events (id, entity_type, entity_id, op, payload)
select %(event)s, %(type)s, id::text, 'upsert',
       json_build_object('title', %(title)s::text, 'content', content, 'revision', revision)
  from written returning event_version, payload::text
"""
DELETE = """
with gone as (delete from load_blocks where id = %(entity)s returning id)
insert into search_outbox_events (id, entity_type, entity_id, op)
select %(event)s, %(type)s, id::text, 'delete' from gone returning event_version, null
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What to produce. `total` 0 means until stopped."""

    scenario: str = "create"
    total: int = 0
    content_bytes: int = 200
    rate: float = 50.0
    concurrency: int = 3


def time_ordered_id() -> uuid.UUID:
    """A version 7 uuid, made here so that an event whose commit got no reply can be found."""
    bits = (int(time.time() * 1000) << 80) | random.getrandbits(80)
    bits = (bits & ~(0xF << 76)) | (0x7 << 76)
    return uuid.UUID(int=(bits & ~(0x3 << 62)) | (0x2 << 62))


@dataclass
class Choice:
    """Chooses the next entity; knows which exist. One for all threads, seeded, so that a run can be repeated."""

    scenario: str
    seed: int
    alive: list[uuid.UUID] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._lock = threading.Lock()
        self._rules: dict[str, Callable[[], tuple[str, uuid.UUID]]] = {
            "create": self._new,
            "update": self._update,
            "mixed": self._mixed,
            "hot-key": self._hot,
            "delete-heavy": self._deletes,
        }

    def next(self) -> tuple[str, uuid.UUID]:
        with self._lock:
            return self._rules[self.scenario]()

    def content(self, size: int) -> str:
        with self._lock:
            filler = self._dice.randbytes(size // 2 + 1).hex()
        return f"{CANARY} {filler}"[: max(size, len(CANARY))]

    def _new(self) -> tuple[str, uuid.UUID]:
        entity = uuid.UUID(int=self._dice.getrandbits(128), version=4)
        self.alive.append(entity)
        return "upsert", entity

    def _update(self) -> tuple[str, uuid.UUID]:
        if len(self.alive) < UPDATED:
            return self._new()
        return "upsert", self._dice.choice(self.alive)

    def _mixed(self) -> tuple[str, uuid.UUID]:
        dice = self._dice.random()
        if not self.alive or dice < 0.2:
            return self._new()
        if dice < 0.3:
            return "delete", self.alive.pop(self._dice.randrange(len(self.alive)))
        return "upsert", self._dice.choice(self.alive)

    def _hot(self) -> tuple[str, uuid.UUID]:
        if not self.alive or self._dice.random() < 0.1:
            return self._new()
        return "upsert", self.alive[0]

    def _deletes(self) -> tuple[str, uuid.UUID]:
        if len(self.alive) < 5 or self._dice.random() < 0.5:
            return self._new()
        return "delete", self.alive.pop(self._dice.randrange(len(self.alive)))


class Producer:
    """Threads that commit at a common rate. A lost connection is replaced; a commit without a reply is noted."""

    def __init__(self, database_url: str, load: Load, ledger: Ledger, seed: int = 1, table: str = EVENTS) -> None:
        self._url = database_url
        self._upsert, self._delete = (text.replace(EVENTS, table).encode() for text in (UPSERT, DELETE))
        self._load = load
        self._ledger = ledger
        self._choice = Choice(load.scenario, seed)
        self._stop = threading.Event()
        self._may_go = threading.Event()
        self._may_go.set()
        self._lock = threading.Lock()
        self._taken = 0
        self._began = time.monotonic()
        self._threads: list[threading.Thread] = []
        self.errors = 0

    def start(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(TABLE)
        self._began = time.monotonic()
        for number in range(self._load.concurrency):
            thread = threading.Thread(target=self._work, name=f"load-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def pause(self) -> None:
        """Commit nothing until `resume`."""
        self._may_go.clear()

    def resume(self) -> None:
        self._may_go.set()

    def stop(self) -> None:
        self._stop.set()
        self.resume()
        self.join()

    def join(self, seconds: float = 10.0) -> None:
        for thread in self._threads:
            thread.join(seconds)

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def _work(self) -> None:
        while not self._stop.is_set() and self._more():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                    self._produce(connection)
            except psycopg.Error:
                self.errors += 1
                self._stop.wait(0.3)

    def _produce(self, connection: psycopg.Connection) -> None:
        while not self._stop.is_set():
            due = self._take()
            if due is None or self._stop.wait(max(0.0, due - time.monotonic())):
                return
            self._may_go.wait()
            if not self._stop.is_set():
                self._commit(connection, *self._choice.next())

    def _more(self) -> bool:
        return not self._load.total or self._taken < self._load.total

    def _take(self) -> float | None:
        """When this thread's next event is due; None if none is left."""
        with self._lock:
            if not self._more():
                return None
            self._taken += 1
            return self._began + self._taken / self._load.rate

    def _commit(self, connection: psycopg.Connection, op: str, entity: uuid.UUID) -> None:
        event = time_ordered_id()
        content = self._choice.content(self._load.content_bytes)
        values = {"event": event, "entity": entity, "type": ENTITY_TYPE, "content": content, "title": f"block {entity}"}
        try:
            row = connection.execute(self._upsert if op == "upsert" else self._delete, values).fetchone()
        except psycopg.Error:
            self._ledger.add(LedgerEntry(str(event), ENTITY_TYPE, str(entity), op, 0, "", time.time(), committed=False))
            raise
        if row is None:
            # Another thread is still creating it: count it as a change anyway, so that totals are exact.
            self._commit(connection, "upsert", entity)
            return
        body = digest(json.loads(row[1])) if row[1] else ""
        self._ledger.add(LedgerEntry(str(event), ENTITY_TYPE, str(entity), op, row[0], body, time.time()))
