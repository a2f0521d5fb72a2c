"""Owns random tables and the foreign keys between them: chains, stars, join tables, self-joins. It knows no view."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

# Of text keys some have what must be quoted somewhere.
ODD: Final = ("plain", "two words", "it's", 'say "x"', "50%", "ä/é", "a\\b", "-- no")
KEYS: Final[dict[str, Callable[[random.Random], Any]]] = {
    "int": lambda dice: dice.randrange(-50, 2**31),
    "bigint": lambda dice: dice.randrange(2**31, 2**62),
    "uuid": lambda dice: UUID(int=dice.getrandbits(128)),
    "text": lambda dice: f"{dice.choice(ODD)} {dice.randrange(10**6)}",
}
ON_DELETE: Final = ("cascade", "no action")


@dataclass(frozen=True)
class Table:
    """A join table has no id: its key are its two links."""

    name: str
    key: str
    joins: bool = False
    read_as: str = ""  # the nested view that documents read it through

    @property
    def source(self) -> str:
        return self.read_as or self.name


@dataclass(frozen=True)
class Reference:
    """A foreign key: `holder.column` names a row of `target`."""

    holder: Table
    column: str
    target: Table
    nullable: bool
    on_delete: str

    @property
    def clause(self) -> str:
        needed = "" if self.nullable else " not null"
        actions = f"on update cascade on delete {self.on_delete}"
        return f"{self.column} {self.target.key}{needed} references {self.target.name} {actions}"


@dataclass
class Shape:
    tables: list[Table] = field(default_factory=list)
    links: list[Reference] = field(default_factory=list)

    def of(self, table: Table) -> list[Reference]:
        """The foreign keys that the table has."""
        return [link for link in self.links if link.holder == table]

    def key(self, table: Table) -> list[str]:
        """The columns of its primary key."""
        return [link.column for link in self.of(table)] if table.joins else ["id"]

    @property
    def roots(self) -> list[Table]:
        return [table for table in self.tables if not table.joins]

    def statements(self) -> Iterator[str]:
        """Tables in an order in which each one's targets are there."""
        made: list[Table] = []
        while len(made) < len(self.tables):
            ready = [table for table in self.tables if table not in made and self._targets(table) <= {*made, table}]
            yield from map(self._create, ready)
            made += ready
        for link in self.links:
            yield f"create index on {link.holder.name} ({link.column})"

    def _targets(self, table: Table) -> set[Table]:
        return {link.target for link in self.of(table)}

    def _create(self, table: Table) -> str:
        links = [link.clause for link in self.of(table)]
        values = ["label text not null", "score int", "unread text"]
        key = ", ".join(self.key(table))
        first, last = ([], [f"primary key ({key})"]) if table.joins else ([f"id {table.key} primary key"], [])
        made = f"create table {table.name} ({', '.join([*first, *links, *values, *last])})"
        columns = ", ".join(
            [*([] if table.joins else ["id"]), *(link.column for link in self.of(table)), "label", "score"]
        )
        return f"{made}; create view {table.read_as} as select {columns} from {table.name}" if table.read_as else made


def shape(dice: random.Random) -> Shape:
    """Three to six tables, each joined to one that was there before."""
    made = Shape([_table(dice, 0)])
    wanted = dice.randrange(3, 7)
    while len(made.tables) < wanted:
        other = dice.choice(made.roots)
        way = dice.choice(("up", "down", "join") if len(made.tables) + 2 <= wanted else ("up", "down"))
        new = _table(dice, len(made.tables))
        made.tables.append(new)
        if way == "join":
            _join(dice, made, other, new)
        else:
            made.links.append(_link(dice, other, new) if way == "up" else _link(dice, new, other))
    if dice.random() < 0.3:
        one = dice.choice(made.roots)
        made.links.append(Reference(one, "up_id", one, True, "cascade"))
    return made


def _table(dice: random.Random, number: int) -> Table:
    name = f"t{number}"
    return Table(name, dice.choice(list(KEYS)), read_as=f"seen_{name}" if dice.random() < 0.2 else "")


def _link(dice: random.Random, holder: Table, target: Table) -> Reference:
    nullable = dice.random() < 0.5
    actions = (*ON_DELETE, "set null") if nullable else ON_DELETE
    return Reference(holder, f"{target.name}_id", target, nullable, dice.choice(actions))


def _join(dice: random.Random, made: Shape, one: Table, other: Table) -> None:
    between = Table(f"{one.name}_{other.name}", "", joins=True)
    made.tables.append(between)
    made.links += [Reference(between, f"{end.name}_id", end, False, "cascade") for end in (one, other)]
