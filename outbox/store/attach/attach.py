"""Attaches and detaches users' tables over a connection of its own, past any pooler: installs and drops triggers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection, sql

from outbox.errors import Conflict, NotFound
from outbox.ports import Attachment, AttachResult
from outbox.store.attach import checks, installed, tables, triggers
from outbox.store.attach.checks import Checked
from outbox.store.attach.installed import Installed
from outbox.store.attach.tables import CannotAttach, SourceTable
from outbox.store.attach.triggers import NO_TRUNCATE, drop_function, drop_trigger
from outbox.store.pool import connect, translated
from outbox.store.queries import queries
from outbox.store.schema.patience import in_transaction


class AttachedOtherwise(Conflict):
    """The type is attached already in a way that excludes this one: its documents would be left behind, or written by
    two sources. Run `outbox detach` for it first, and remove them."""


class NotAttached(NotFound):
    """The table is not attached to the outbox in this way. `outbox attach --help` shows how to do so."""


def attach(conn: psycopg.Connection[Any], table: str, *, view: str | None = None, **how: Any) -> AttachResult:
    """Install the triggers, or renew them. From the commit on, every change of a row writes its events. `how`: as
    `Attachment` names it."""
    source = tables.find(conn, table)
    wanted = Attachment(source.shown, **how)
    wanted = replace(wanted, via=wanted.via.strip() if wanted.via is not None else None)
    checked = checks.check(conn, source, wanted, view)
    by_row = wanted.per_row or wanted.payload or tables.row_trigger_reason(source, wanted.columns) != ""
    wanted = replace(wanted, per_row=by_row)
    install(conn, source, wanted, checked)
    return AttachResult(wanted, checked.notes, tables.count_rows(conn, source), _enqueue(conn, source, wanted))


def _enqueue(conn: psycopg.Connection[Any], source: SourceTable, wanted: Attachment) -> str:
    if not wanted.payload:
        return ""
    sending = sql.SQL(
        "select {}({}, t.{}::text, 'upsert', to_json(t){}) from (select * from {} for update) as t;"
    ).format(
        sql.Identifier(source.outbox_schema, "outbox_enqueue"),
        sql.Literal(wanted.entity_type),
        sql.Identifier(wanted.id_column or ""),
        sql.SQL(", routing => t.{}::text").format(sql.Identifier(wanted.routing_column))
        if wanted.routing_column
        else sql.SQL(""),
        source.name,
    )
    return sending.as_string(conn)


def install(conn: psycopg.Connection[Any], source: SourceTable, wanted: Attachment, checked: Checked) -> None:
    """In one transaction: no change of the table is without its event meanwhile."""
    there = installed.installed(conn)
    _refuse_conflicts(wanted, there)
    same = [each for each in there if each.oid == source.oid and each.attachment.way == wanted.way]
    path = [name for (name,) in conn.execute(queries("producers")["search_path"], {}).fetchall()]
    function = triggers.function_name(source, wanted)
    put = triggers.statements(conn, source, wanted, function, path, checked.watched)
    kept = set(triggers.trigger_names(wanted).values())
    drops = [drop for each in same for drop in _drops(source, each, kept, function)]
    in_transaction(conn, lambda: [conn.execute(statement) for statement in (*put, *drops)])


def _drops(source: SourceTable, old: Installed, kept: set[str], function: sql.Identifier) -> list[sql.Composed]:
    """What an older form, or the other level of triggers, leaves behind."""
    drops = [drop_trigger(trigger.name, source.name) for trigger in old.triggers if trigger.name not in kept]
    return drops if old.function == function else [*drops, drop_function(old.function)]


def detach(conn: psycopg.Connection[Any], table: str, *, entity_type: str | None = None) -> list[Attachment]:
    """Remove the triggers and their functions, of all types or of one; events that were written stay."""
    source = tables.find(conn, table)
    there = [each for each in installed.installed(conn) if each.oid == source.oid]
    chosen = [each for each in there if entity_type in (None, each.attachment.entity_type)]
    if not chosen:
        raise NotAttached(f"{source.shown}{f' as {entity_type}' if entity_type is not None else ''}")
    drops = [drop for each in chosen for drop in (*_triggers_of(source, each), drop_function(each.function))]
    if len(chosen) == len(there):
        drops += [drop_trigger(NO_TRUNCATE, part) for part in source.partitions]
    in_transaction(conn, lambda: [conn.execute(drop) for drop in drops])
    return [each.attachment for each in chosen]


def _triggers_of(source: SourceTable, each: Installed) -> list[sql.Composed]:
    return [drop_trigger(trigger.name, source.name) for trigger in each.triggers]


def _refuse_conflicts(wanted: Attachment, there: list[Installed]) -> None:
    """A type is kept by payloads or by refreshes, never both; and a payload names its document by one column."""
    for other in (each.attachment for each in there if each.attachment.entity_type == wanted.entity_type):
        same_table = other.table == wanted.table
        if (same_table and other.way == wanted.way) or not (other.payload or wanted.payload):
            continue
        if same_table or (other.payload != wanted.payload and not other.older):
            how = "with its payload" if other.payload else "by refreshes"
            raise AttachedOtherwise(f"{other.table} is attached as {other.shown}, {how}")


class PostgresAttachments:
    def __init__(self, direct_url: str, view: str) -> None:
        self._url = direct_url
        self._view = view

    def attach(self, wanted: Attachment) -> AttachResult:
        with self._acting() as connection:
            return attach(connection, wanted.table, **wanted.how(), view=self._view)

    def detach(self, table: str, *, entity_type: str | None) -> list[Attachment]:
        with self._acting() as connection:
            return detach(connection, table, entity_type=entity_type)

    @contextmanager
    def _acting(self) -> Iterator[Connection[Any]]:
        with connect(self._url, application="outbox attach") as connection, translated(), _permitted():
            yield connection


@contextmanager
def _permitted() -> Iterator[None]:
    """Triggers are made by the table's owner; PostgreSQL's own words name the table."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        said = error.diag.message_primary or "permission denied"
        raise CannotAttach(
            [f"{said}. Run this as the table's owner, with the right to write to the outbox too."]
        ) from error
