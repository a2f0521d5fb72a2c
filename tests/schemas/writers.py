"""Owns writers who change the rows of a shape at the same time, in transactions that overlap."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel

from tests.fixtures.overlapping import settled
from tests.schemas.shape import KEYS, Reference, Shape, Table

WRITERS: Final = 4
FIRST_ROWS: Final = 5  # of each table, before the writers begin
LONGEST_PAUSE_SECONDS: Final = 0.03  # before a commit
# Of the transactions: before their commit they wait until what others have committed meanwhile is projected, and not
# longer than this. Without that a later event mostly hides what a wrong order has left.
PROJECTED_FIRST: Final = 0.7
MOST_SECONDS: Final = 0.5
OPEN_NOW: Final = "select id from search_outbox_events where processed_at is null"
# What writers run into when they meet; the transaction is rolled back.
REFUSED: Final = (psycopg.errors.IntegrityError, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
Connection = psycopg.Connection[Any]


class Writer:
    """One session. `refused` counts its transactions that met another one."""

    def __init__(self, shape: Shape, connection: Connection, watch: Connection, seed: str) -> None:
        self._shape = shape
        self._connection, self._watch = connection, watch
        self._dice = random.Random(seed)
        self.refused = 0

    def fill(self) -> None:
        """In an order in which each table's targets are there; a link to the table itself stays null at first."""
        made: set[Table] = set()
        while len(made) < len(self._shape.tables):
            for table in self._shape.tables:
                if table not in made and {link.target for link in self._shape.of(table)} <= made | {table}:
                    made.add(table)
                    for _ in range(FIRST_ROWS):
                        self._attempt([lambda table=table: self._insert(table)])

    def transactions(self, number: int) -> None:
        for _ in range(number):
            repeatable = self._dice.random() < 0.2
            level = IsolationLevel.REPEATABLE_READ if repeatable else IsolationLevel.READ_COMMITTED
            self._connection.isolation_level = level
            self._attempt([self._change] * self._dice.choice((1, 1, 2, 3)))

    def _attempt(self, steps: list[Any]) -> None:
        try:
            for step in steps:
                step()
            self._pause()
            self._connection.commit()
        except REFUSED:
            self._connection.rollback()
            self.refused += 1

    def _pause(self) -> None:
        time.sleep(self._dice.random() * LONGEST_PAUSE_SECONDS)
        until = time.monotonic() + MOST_SECONDS
        if self._dice.random() < PROJECTED_FIRST:
            there = [id for (id,) in self._watch.execute(OPEN_NOW).fetchall()]
            while time.monotonic() < until and not settled(self._watch, there):
                time.sleep(0.01)

    def _change(self) -> None:
        table = self._dice.choice(self._shape.tables)
        what = self._dice.choices(
            (self._set_value, self._set_link, self._insert, self._delete, self._set_key), (8, 8, 4, 2, 1)
        )
        what[0](table)

    def _run(self, text: str, values: list[Any]) -> None:
        self._connection.execute(text.encode(), values)

    def _one_row(self, table: Table) -> tuple[str, list[Any]]:
        """A condition for one row, or a few; an empty table has none."""
        columns = self._shape.key(table)
        names = ", ".join(columns)
        found = self._connection.execute(f"select {names} from {table.name} order by random() limit 1".encode())
        row = found.fetchone() or [None] * len(columns)
        return " and ".join(f"{column} = %s" for column in columns), list(row)

    def _set_value(self, table: Table) -> None:
        column, value = self._dice.choice(
            [("label", self._label()), ("score", self._dice.randrange(100)), ("unread", self._label())]
        )
        where, row = self._one_row(table)
        self._run(f"update {table.name} set {column} = %s where {where}", [value, *row])

    def _set_link(self, table: Table) -> None:
        links = self._shape.of(table)
        if not links:
            return self._set_value(table)
        link = self._dice.choice(links)
        where, row = self._one_row(table)
        return self._run(f"update {table.name} set {link.column} = %s where {where}", [self._end(link), *row])

    def _insert(self, table: Table) -> None:
        links = self._shape.of(table)
        values = {link.column: self._end(link) for link in links}
        values |= {"label": self._label(), "score": self._dice.randrange(100)}
        if not table.joins:
            values["id"] = KEYS[table.key](self._dice)
        places = ", ".join(["%s"] * len(values))
        self._run(f"insert into {table.name} ({', '.join(values)}) values ({places})", list(values.values()))

    def _delete(self, table: Table) -> None:
        where, row = self._one_row(table)
        self._run(f"delete from {table.name} where {where}", row)

    def _set_key(self, table: Table) -> None:
        if table.joins:
            return self._set_link(table)
        where, row = self._one_row(table)
        return self._run(f"update {table.name} set id = %s where {where}", [KEYS[table.key](self._dice), *row])

    def _end(self, link: Reference) -> Any:
        if link.nullable and self._dice.random() < 0.25:
            return None
        found = self._connection.execute(f"select id from {link.target.name} order by random() limit 1".encode())
        row = found.fetchone()
        return row[0] if row else None

    def _label(self) -> str:
        return f"label {self._dice.randrange(10**6)}"


class Writers:
    """All writers of one schema. The rows that random() picks make no run like another, whatever the seed."""

    def __init__(self, database: str, shape: Shape, seed: int) -> None:
        self._connections = [psycopg.connect(database) for _ in range(WRITERS)]
        self._watches = [psycopg.connect(database, autocommit=True) for _ in range(WRITERS)]
        pairs = zip(self._connections, self._watches, strict=True)
        self._writers = [Writer(shape, *pair, f"{seed} {n}") for n, pair in enumerate(pairs)]

    def fill(self) -> None:
        self._writers[0].fill()

    def write(self, transactions: int) -> None:
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda writer: writer.transactions(transactions), self._writers))

    @property
    def refused(self) -> int:
        return sum(writer.refused for writer in self._writers)

    def close(self) -> None:
        for connection in (*self._connections, *self._watches):
            connection.close()
