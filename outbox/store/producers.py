"""Owns the trigger that turns changes of a user's table into events; it does not write events itself."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import LiteralString

import psycopg
from psycopg import sql

from outbox.errors import Conflict, NotFound
from outbox.store import migration_files, producer_tables
from outbox.store.patience import in_transaction
from outbox.store.producer_tables import SourceTable

_NOTHING = sql.SQL("null::text")


class AttachedOtherwise(Conflict):
    """The table is attached already, as another type or by another id: its documents would be left behind. Run
    `outbox detach` for it first, and remove them."""


class NotAttached(NotFound):
    """The table is not attached to the outbox. `outbox attach --help` shows how to do so."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attached table and how its rows become events."""

    table: str
    entity_type: str
    id_column: str
    routing_column: str | None
    payload: bool


def attach(
    conn: psycopg.Connection,
    table: str,
    *,
    entity_type: str,
    id_column: str,
    routing_column: str | None = None,
    payload: bool = False,
) -> Attachment:
    """Install the triggers, or renew them. From the commit on, every change of a row writes its event."""
    source = producer_tables.find(conn, table)
    producer_tables.check(conn, source, entity_type, id_column, routing_column)
    wanted = Attachment(source.shown, entity_type, id_column, routing_column, payload)
    _refuse_another(conn, wanted)
    statements = [_capture(source, wanted), *(_refuse_truncate(source, part) for part in source.partitions)]
    in_transaction(conn, lambda: [conn.execute(statement) for statement in statements])
    return wanted


def detach(conn: psycopg.Connection, table: str) -> None:
    """Remove the triggers and their function; events that were written stay."""
    source = producer_tables.find(conn, table)
    function = _installed_function(conn, source)
    drops = [
        *(_drop_trigger("search_outbox_no_truncate", part) for part in source.partitions),
        _drop_trigger("search_outbox_capture", source.name),
        sql.SQL("drop function if exists {}()").format(function),
    ]
    in_transaction(conn, lambda: [conn.execute(drop) for drop in drops])


def attachments(conn: psycopg.Connection) -> list[Attachment]:
    """Every attached table. A partition's own copy of the trigger is not listed."""
    rows = conn.execute(
        "select n.nspname || '.' || c.relname, t.tgargs"
        " from pg_trigger as t join pg_class as c on c.oid = t.tgrelid"
        " join pg_namespace as n on n.oid = c.relnamespace"
        " where t.tgname = 'search_outbox_capture' and t.tgparentid = 0 order by 1"
    ).fetchall()
    return [_read(table, bytes(arguments)) for table, arguments in rows]


def _read(table: str, arguments: bytes) -> Attachment:
    """The trigger's arguments serve only this: telling people how the table is attached."""
    entity_type, id_column, routing, payload = arguments.decode().split("\0")[:4]
    return Attachment(table, entity_type, id_column, routing or None, payload == "payload")


def _refuse_another(conn: psycopg.Connection, wanted: Attachment) -> None:
    for there in attachments(conn):
        same = (there.entity_type, there.id_column) == (wanted.entity_type, wanted.id_column)
        if there.table == wanted.table and not same:
            raise AttachedOtherwise(f"{there.table} is attached as {there.entity_type} by {there.id_column}")


def _capture(source: SourceTable, wanted: Attachment) -> sql.Composed:
    routing = wanted.routing_column
    return _template("capture").format(
        function=_function(source),
        events=sql.Identifier(source.outbox_schema, "search_outbox_events"),
        version=sql.Literal(sql.Identifier(source.outbox_schema, "search_outbox_version").as_string()),
        table=source.name,
        id=sql.Identifier(wanted.id_column),
        type=sql.Literal(wanted.entity_type),
        old_routing=_column("old", routing) if routing else _NOTHING,
        new_routing=_column("new", routing) if routing else _NOTHING,
        payload=sql.SQL("to_json(new)") if wanted.payload else sql.SQL("null"),
        id_name=sql.Literal(wanted.id_column),
        routing_name=sql.Literal(routing or ""),
        payload_name=sql.Literal("payload" if wanted.payload else ""),
    )


def _refuse_truncate(source: SourceTable, part: sql.Identifier) -> sql.Composed:
    refuse = sql.Identifier(source.outbox_schema, "search_outbox_refuse_truncate")
    return _template("refuse_truncate").format(table=part, refuse=refuse)


def _drop_trigger(name: str, table: sql.Identifier) -> sql.Composed:
    return sql.SQL("drop trigger if exists {} on {}").format(sql.Identifier(name), table)


def _column(row: LiteralString, column: str) -> sql.Composed:
    return sql.SQL(row) + sql.SQL(".{}::text").format(sql.Identifier(column))


def _function(source: SourceTable) -> sql.Identifier:
    """Named after the table for people, with a hash for uniqueness within PostgreSQL's 63 bytes."""
    readable = source.relation.encode()[:31].decode(errors="ignore")
    unique = sha256(source.shown.encode()).hexdigest()[:8]
    return sql.Identifier(source.outbox_schema, f"search_outbox_capture_{readable}_{unique}")


def _installed_function(conn: psycopg.Connection, source: SourceTable) -> sql.Identifier:
    """By the trigger, not by name: the table may have been renamed since."""
    row = conn.execute(
        "select n.nspname, p.proname from pg_trigger as t join pg_proc as p on p.oid = t.tgfoid"
        " join pg_namespace as n on n.oid = p.pronamespace"
        " where t.tgrelid = %s and t.tgname = 'search_outbox_capture'",
        (source.oid,),
    ).fetchone()
    if row is None:
        raise NotAttached(source.shown)
    return sql.Identifier(*row)


def _template(name: str) -> sql.SQL:
    return sql.SQL(migration_files.producer(name))
