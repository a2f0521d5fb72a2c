"""Owns the audited exceptions: tables, or columns, that the view reads and that need no attachment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from outbox.errors import NotFound
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.inputs import reason as checked_reason
from outbox.store import audit
from outbox.store.attach import tables
from outbox.store.attach.attach import acting
from outbox.store.attach.tables import CannotAttach, SourceTable
from outbox.store.pool import fetch_row
from outbox.store.queries import queries


class NotIgnored(NotFound):
    """Nobody has said that this table needs no attachment. `outbox doctor` lists those of which someone did."""


@dataclass(frozen=True, slots=True)
class PostgresIgnoredTables:
    """Over a connection of its own, past any pooler: only the owner of the outbox's tables may say so."""

    direct_url: str

    def ignore(self, names: Sequence[str], columns: Sequence[str], actor: Actor, reason: str) -> list[str]:
        reason = checked_reason(reason)
        with acting(self.direct_url) as connection, connection.transaction():
            found = [_find(connection, name, columns) for name in names]
            for source in found:
                named = {"source": source.oid, "named": source.shown, "columns": list(columns)}
                connection.execute(queries("coverage")["ignore"], {**named, "reason": reason, "by": actor.name})
            audit.write(connection, [_entry(Action.TABLE_IGNORED, actor, reason, each, columns) for each in found])
            return [each.shown for each in found]

    def watch_again(self, name: str, actor: Actor) -> str:
        """Take it back. Returns the reason that had been given."""
        with acting(self.direct_url) as connection, connection.transaction():
            source = tables.find(connection, name)
            row = fetch_row(connection, queries("coverage")["watch_again"], {"source": source.oid})
            if row is None:
                raise NotIgnored(source.shown)
            audit.write(connection, [_entry(Action.TABLE_WATCHED_AGAIN, actor, None, source, row["columns"])])
            return str(row["reason"])


def _find(connection: Connection[Any], name: str, columns: Sequence[str]) -> SourceTable:
    source = tables.find(connection, name)
    if source.kind == "v":
        raise CannotAttach([f"{source.shown} is a view. Name the tables behind it that need no attachment."])
    if missing := [column for column in columns if column not in source.columns]:
        has = ", ".join(sorted(source.columns))
        raise CannotAttach([f"{source.shown} has no column {', '.join(missing)}. It has {has}."])
    return source


def _entry(action: Action, actor: Actor, reason: str | None, source: SourceTable, columns: Sequence[str]) -> Entry:
    return Entry(action, actor, reason, detail={"table": source.shown, "columns": list(columns)})
