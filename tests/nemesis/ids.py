"""Owns the type of ids in a run: loads name their rows `p17`, and database and index have the id of that type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, LiteralString

import psycopg

NAME = re.compile(r"[a-z]\d+")
FIRST_DAY = date(2001, 1, 1)
# How SQL makes an id of a letter and a number, by type; `typed` below does the same.
MADE_BY: dict[LiteralString, LiteralString] = {
    "text": "letter || n",
    "varchar(40)": "letter || n",
    "char(26)": "letter || lpad(n::text, 25, '0')",
    "uuid": "(lpad(to_hex(ascii(letter)), 8, '0') || '-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
    "bigint": "9000000000 + n",
    "integer": "n",
    "smallint": "n",
    "numeric": "n + 0.50",
    "date": "date '2001-01-01' + n",
}


@dataclass(frozen=True, slots=True)
class Ids:
    type: LiteralString = "text"

    def typed(self, name: str) -> str:
        """The text of the id that a name stands for; any other text as it is."""
        if not NAME.fullmatch(name):
            return name
        letter, n = name[0], int(name[1:])
        match self.type:
            case "char(26)":
                return f"{letter}{n:025d}"
            case "uuid":
                return f"{ord(letter):08x}-0000-4000-8000-{n:012x}"
            case "bigint":
                return str(9_000_000_000 + n)
            case "integer" | "smallint":
                return str(n)
            case "numeric":
                return f"{n}.50"
            case "date":
                return (FIRST_DAY + timedelta(days=n)).isoformat()
        return name

    def sql(self, statements: LiteralString) -> LiteralString:
        """Where a table's definition says ID."""
        return statements.replace(" ID ", f" {self.type} ").replace("(ID)", f"({self.type})")

    @property
    def function(self) -> LiteralString:
        """For rows that the SQL of a part makes: nemesis_id('p', 17)."""
        return (
            f"create function nemesis_id(letter text, n int) returns {self.type} language sql immutable"
            f" return ({MADE_BY[self.type]})::{self.type};\n"
        )


TEXT = Ids()


class TypedConnection:
    """What a load needs of a connection, with every name among the values as the id that it stands for."""

    def __init__(self, connection: psycopg.Connection[Any], ids: Ids) -> None:
        self._connection = connection
        self._ids = ids

    def execute(self, query: LiteralString, values: Any = ()) -> psycopg.Cursor[Any]:
        return self._connection.execute(query, self._all(values))

    def _all(self, values: Any) -> Any:
        if isinstance(values, dict):
            return {name: self._one(value) for name, value in values.items()}
        return [self._one(value) for value in values]

    def _one(self, value: Any) -> Any:
        return self._ids.typed(value) if isinstance(value, str) else value

    def commit(self) -> None:
        self._connection.commit()
