"""Owns the hands that poison the neighbours: rows at a steady pace, locks that are held, a column that is altered."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from tests.fixtures.extremes import REFUSED_AT_INSERT
from tests.nemesis.poison import ALTERED, KINDS, LOCKED_EVENT, LOCKED_LEASE, Brew, Row

HOLD_SECONDS = 3.0  # longer than a settle waits for a row (2 s)
CATCH_SECONDS = 10.0
CHECK_SECONDS = 0.002
LOCKS: dict[str, LiteralString] = {
    LOCKED_EVENT: "select from search_outbox_events where id = %s and status = 'processing' for update skip locked",
    LOCKED_LEASE: "select from search_outbox_leases where ids = array[%s]::uuid[] for update skip locked",
}
OPEN: LiteralString = "select from search_outbox_events where id = %s and processed_at is null and failed_at is null"
# Nobody waits behind an ALTER that waits: it gives up at once and comes again.
ALTER: tuple[LiteralString, LiteralString] = (
    "set lock_timeout = '50ms'; alter table search_outbox_events alter column traceparent type varchar",
    "set lock_timeout = '50ms'; alter table search_outbox_events alter column traceparent type text",
)


class Poisoner:
    """One thread for rows, one for each kind of lock, one for the ALTER. `made` names the rows, `held` the rest."""

    def __init__(
        self, database_url: str, brew: Brew, seed: int, kinds: Collection[str], *, at_once: bool = False
    ) -> None:
        self._url = database_url
        self._brew = brew
        self._dice = random.Random(f"{seed}:poisoner")
        self._kinds = [KINDS[name] for name in kinds]
        self._first_seconds = 1.5 if at_once else 30.0  # until each kind has come once, where it does not come often
        self._stop = threading.Event()
        self._brewing = threading.Lock()
        # An ALTER must not queue behind a lock that is held for seconds: all others would queue behind the ALTER.
        self._holding = {name: threading.Lock() for name in LOCKS}
        self._threads: list[threading.Thread] = []
        self.made: dict[UUID, str] = {}
        self.tried: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()  # by PostgreSQL, at the insert: the producer sees that at once
        self.problems: list[str] = []

    def start(self) -> None:
        names = {kind.name for kind in self._kinds}
        work: list[Callable[[psycopg.Connection[Any]], None]] = [self._insert_all]
        work += [self._lock_all(name) for name in LOCKS if name in names]
        work += [self._alter_all] if ALTERED in names else []
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(HOLD_SECONDS + CATCH_SECONDS)

    def _run(self, work: Callable[[psycopg.Connection[Any]], None]) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                work(connection)
        except psycopg.Error as error:
            self.problems.append(f"the poisoner broke off: {type(error).__name__}: {error}")

    # Rows

    def _insert_all(self, connection: psycopg.Connection[Any]) -> None:
        """Each kind at its own pace, jittered, from the first one on: all of them at once would be another experiment.
        Only a lane of seconds begins with all."""
        kinds = [kind for kind in self._kinds if kind.name not in (*LOCKS, ALTERED)]
        due = {
            kind: time.monotonic() + min(self._first_seconds, kind.every_seconds) * self._dice.random()
            for kind in kinds
        }
        while due:
            kind = min(due, key=lambda each: due[each])
            if self._stop.wait(max(0.0, due[kind] - time.monotonic())):
                return
            self._insert(connection, kind.name)
            due[kind] += kind.every_seconds * (0.5 + self._dice.random())

    def _insert(self, connection: psycopg.Connection[Any], kind: str) -> UUID | None:
        with self._brewing:
            event, viewed = self._brew.row(kind)
        self.tried[kind] += 1
        try:
            if viewed is not None:
                connection.execute(_insert("viewed"), list(viewed.values()))
            row = connection.execute(_insert("search_outbox_events", event), list(event.values())).fetchone()
        except REFUSED_AT_INSERT:
            self.refused[kind] += 1
            return None
        assert row is not None
        self.made[row[0]] = kind
        return UUID(str(row[0]))

    # Locks

    def _lock_all(self, kind: str) -> Callable[[psycopg.Connection[Any]], None]:
        def work(connection: psycopg.Connection[Any]) -> None:
            while True:
                self._hold_one(connection, kind)
                if self._stop.wait(max(0.0, KINDS[kind].every_seconds * (0.5 + self._dice.random()) - HOLD_SECONDS)):
                    return

        return work

    def _hold_one(self, connection: psycopg.Connection[Any], kind: str) -> None:
        """Caught while a worker has it, then held; a stop ends the hold."""
        id = self._insert(connection, kind)
        deadline = time.monotonic() + CATCH_SECONDS
        while time.monotonic() < deadline and not self._stop.is_set():
            with self._holding[kind], connection.transaction():
                if connection.execute(LOCKS[kind], [id]).rowcount:
                    self.held[kind] += 1
                    self._stop.wait(HOLD_SECONDS)
                    return
            if not connection.execute(OPEN, [id]).rowcount:
                return  # it was quicker
            time.sleep(CHECK_SECONDS)

    def _alter_all(self, connection: psycopg.Connection[Any]) -> None:
        turn = 0
        while not self._stop.wait(min(2.0, KINDS[ALTERED].every_seconds) if not turn else KINDS[ALTERED].every_seconds):
            self.tried[ALTERED] += 1
            while not self._stop.is_set():
                try:
                    with self._holding[LOCKED_EVENT], self._holding[LOCKED_LEASE]:
                        connection.execute(ALTER[turn % 2])
                except psycopg.errors.LockNotAvailable:
                    self._stop.wait(0.2)
                    continue
                self.held[ALTERED] += 1
                turn += 1
                break


def _insert(table: str, row: Row | None = None) -> sql.Composed:
    columns = list(row or ("id", "title", "content", "revision"))
    return sql.SQL("insert into {} ({}) values ({}) returning id").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
    )
