"""Owns the joined part of the load: two transactions at a time on one parent and its children, with their refreshes.

They overlap and commit in either order, without a lock that would order them. No event of theirs carries a document.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg

from labs.ledger import Ledger, LedgerEntry
from labs.producing import CANARY
from tests.nemesis.ids import TEXT, Ids, TypedConnection

KIND = "joined"
REFRESH = "refresh"
PARENTS = 240
HOT = 12
EVENTS = 2  # of a pair, as a rule
# Of all acts, single events included: a pair has two events, so a fifth of the acts is over a quarter of the events.
SHARE_OF_ACTS = 0.2
MOST_SECONDS_APART = 0.06

Connection = psycopg.Connection[Any] | TypedConnection
Change = Callable[[Connection, str, random.Random], Sequence[str]]  # which documents it touches

# No foreign keys: what a transaction does to a child must not wait for what another does to its parent.
TABLES: LiteralString = """
create table nemesis_parents (id ID primary key, title text not null, revision bigint not null);
create table nemesis_notes (
    id bigint generated always as identity primary key, parent_id ID not null, note text not null);
create table nemesis_tags (
    id bigint generated always as identity primary key, parent_id ID not null, tag text not null);
create index on nemesis_notes (parent_id);
create index on nemesis_tags (parent_id);
"""
VIEW: LiteralString = """
select 'joined'::text as entity_type, p.id as entity_id,
       json_build_object(
           'title', p.title, 'kind', 'joined', 'revision', p.revision,
           'notes', (select coalesce(json_agg(n.note order by n.id), '[]') from nemesis_notes n
                      where n.parent_id = p.id),
           'tags', (select coalesce(json_agg(t.tag order by t.id), '[]') from nemesis_tags t
                     where t.parent_id = p.id)) as document,
       null as routing
  from nemesis_parents p
"""

# Only an act's first transaction locks a parent, and children are locked only where nobody else has them: whoever waits
# holds nothing that the other needs, and one thread with two transactions never waits for itself.
KEEP: LiteralString = """
insert into nemesis_parents (id, title, revision) values (%(id)s, %(text)s, %(number)s)
on conflict (id) do update set title = excluded.title, revision = excluded.revision
"""
REMOVE: LiteralString = "delete from nemesis_parents where id = %(id)s"
FREE: dict[str, LiteralString] = {
    "note": "(select id from nemesis_notes where parent_id = %(id)s order by id limit 1 for update skip locked)",
    "tag": "(select id from nemesis_tags where parent_id = %(id)s order by id limit 1 for update skip locked)",
}
ADD_NOTE: LiteralString = "insert into nemesis_notes (parent_id, note) values (%(id)s, %(text)s)"
ADD_TAG: LiteralString = "insert into nemesis_tags (parent_id, tag) values (%(id)s, %(text)s)"
REMOVE_NOTE: LiteralString = "delete from nemesis_notes where id = " + FREE["note"]
REMOVE_TAG: LiteralString = "delete from nemesis_tags where id = " + FREE["tag"]
MOVE_NOTE: LiteralString = "update nemesis_notes set parent_id = %(other)s where id = " + FREE["note"]
EMPTY_NOTES: LiteralString = """
delete from nemesis_notes
 where id in (select id from nemesis_notes where parent_id = %(id)s for update skip locked)
"""
ASK = "select outbox_refresh(%s, %s)::text"


def name(dice: random.Random) -> str:
    """A dozen parents get a third of the changes: there two transactions meet."""
    return f"p{dice.randrange(HOT) if dice.random() < 0.35 else dice.randrange(PARENTS)}"


def followed(ids: Ids) -> list[str]:
    """Documents that are changed, deleted and made again all the time, and some of the many."""
    return [f"{KIND}:{ids.typed(f'p{n}')}" for n in (*range(HOT), *range(HOT, PARENTS, PARENTS // 12))]


Values = Callable[[str, random.Random], dict[str, Any]]


def doing(*statements: LiteralString, values: Values = lambda *_: {}, touches: Sequence[str] = ("id",)) -> Change:
    """Statements about a subject, which is their `id`; `touches`: whose documents are others afterwards."""

    def change(connection: Connection, subject: str, dice: random.Random) -> Sequence[str]:
        given = {"id": subject, "text": text(dice), "number": dice.randrange(1_000_000), **values(subject, dice)}
        for statement in statements:
            connection.execute(statement, {name: given[name] for name in given if f"%({name})s" in statement})
        return sorted({given[name] for name in touches})

    return change


keep, add_note, add_tag, remove_note, remove_tag = map(doing, (KEEP, ADD_NOTE, ADD_TAG, REMOVE_NOTE, REMOVE_TAG))
remove = doing(REMOVE)  # its notes stay for the next parent of that name
remove_all = doing(REMOVE, EMPTY_NOTES)
move_note = doing(MOVE_NOTE, values=lambda _, dice: {"other": name(dice)}, touches=("id", "other"))


# What the first transaction of a pair may do, and the second, which must lock no parent; with their weights.
FIRST: dict[Change, int] = {keep: 16, remove: 4, remove_all: 4, add_note: 10, remove_note: 3, remove_tag: 3}
SECOND: dict[Change, int] = {add_note: 8, add_tag: 4, remove_note: 3, remove_tag: 3, move_note: 2}


@dataclass
class Pairs:
    """Pairs of transactions on documents of one type, noted in the ledger as they are committed."""

    ledger: Ledger
    kind: str = KIND
    name: Callable[[random.Random], str] = name
    first: Mapping[Change, int] = field(default_factory=FIRST.copy)
    second: Mapping[Change, int] = field(default_factory=SECOND.copy)
    asks: bool = True  # for refreshes; attached tables write their own events, which only the database notes
    apart: float = MOST_SECONDS_APART
    ids: Ids = TEXT
    swapped: int = 0  # pairs whose commits came in the other order than their writes
    refused: int = 0  # events that surely did not commit

    def commit(self, open_: Sequence[psycopg.Connection[Any]], dice: random.Random) -> None:
        """Raises what psycopg raises; the rest is rolled back by whoever closes the connections."""
        connections = [TypedConnection(connection, self.ids) for connection in open_]
        subject = self.name(dice)
        written: list[tuple[Connection, list[LedgerEntry]]] = []
        try:
            for connection, changes in zip(connections, (self.first, self.second), strict=True):
                (change,) = dice.choices(list(changes), list(changes.values()))
                written.append((connection, self._write(connection, change, subject, dice)))
        except psycopg.Error:
            self.refused += EVENTS  # no COMMIT was sent
            raise
        swap = dice.random() < 0.5
        self._commit_all(written[::-1] if swap else written, dice)
        self.swapped += swap

    def _commit_all(self, written: Sequence[tuple[Connection, list[LedgerEntry]]], dice: random.Random) -> None:
        for place, (connection, entries) in enumerate(written):
            if place:
                time.sleep(dice.uniform(0, self.apart))
            try:
                connection.commit()
            except psycopg.Error:
                self._note(entries, committed=False)
                self.refused += sum(len(rest) for _, rest in written[place + 1 :])
                raise
            self._note(entries)

    def _note(self, entries: Sequence[LedgerEntry], *, committed: bool = True) -> None:
        for entry in entries:
            self.ledger.add(entry if committed else entry.unanswered())

    def _write(self, connection: Connection, change: Change, subject: str, dice: random.Random) -> list[LedgerEntry]:
        """The refresh stands before the change or after it: in one transaction that is the same."""
        if not self.asks:
            change(connection, subject, dice)
            return []
        early = [self._ask(connection, subject)] if dice.random() < 0.3 else []
        touched = change(connection, subject, dice)
        return early + [self._ask(connection, id) for id in touched if not early or id != subject]

    def _ask(self, connection: Connection, id: str) -> LedgerEntry:
        id = self.ids.typed(id)
        row = connection.execute(ASK, [self.kind, id]).fetchone()
        assert row is not None
        return LedgerEntry(row[0], self.kind, id, REFRESH, 0, "", time.time())


def text(dice: random.Random) -> str:
    return f"{CANARY} {dice.randbytes(20).hex()}"
