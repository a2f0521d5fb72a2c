"""Owns what is known of attached tables: our rows with the triggers that are there, and what `outbox doctor` asks."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import psycopg
from psycopg import sql

from outbox.ports import Attachment
from outbox.store.attach import documents_view, older, via
from outbox.store.attach.attachments import AttachedRow
from outbox.store.attach.documents_view import DocumentsView
from outbox.store.attach.tables import TablePartition, read_columns, read_partitions
from outbox.store.pool import fetch_rows
from outbox.store.queries import queries

PREFIX = "search_outbox_capture"
STATEMENT_TRIGGERS = ("insert", "update", "delete")
ROW_TRIGGERS = ("row",)


@dataclass(frozen=True, slots=True)
class Trigger:
    name: str
    enabled: str  # A always, O in ordinary sessions, R in replicas, D not at all


@dataclass(frozen=True, slots=True)
class Installed:
    """An attachment with the triggers and the function that it has. `number`: None where its triggers are of release
    0.1.0, and no row of ours says what they are."""

    attachment: Attachment
    number: int | None
    oid: int
    quoted_table: str
    triggers: tuple[Trigger, ...]
    function: str
    function_schema: str
    path: tuple[str, ...]
    needs_row_triggers: bool
    partitions: int
    elsewhere: str
    """The table that it writes to, where that is not the one that producers write to now."""
    in_transaction: bool = False
    """Its triggers run its query themselves, in the writer's transaction, as release 0.1.0 made them."""

    @property
    def command(self) -> str:
        return self.attachment.command(self.quoted_table)

    @property
    def missing_triggers(self) -> tuple[str, ...]:
        wanted = ROW_TRIGGERS if self.attachment.per_row else STATEMENT_TRIGGERS
        there = {trigger.name.removeprefix(PREFIX).rpartition("_")[2] for trigger in self.triggers}
        return tuple(name for name in wanted if name not in there)


def installed(conn: psycopg.Connection[Any]) -> list[Installed]:
    """Every attachment of this database, by table, those of release 0.1.0 included."""
    return sorted([*strays(conn), *_rows(conn, "installed")], key=lambda each: each.attachment.table)


def strays(conn: psycopg.Connection[Any]) -> list[Installed]:
    """Triggers of release 0.1.0 that no row of ours explains. What their arguments say is never run."""
    return _rows(conn, "strays")


def attachments(conn: psycopg.Connection[Any]) -> list[Attachment]:
    return [each.attachment for each in installed(conn)]


def _rows(conn: psycopg.Connection[Any], query: str) -> list[Installed]:
    rows = fetch_rows(conn, queries("producers")[query], {})
    by_function = groupby(rows, key=lambda row: (row["oid"], row["function"], row["id"]))
    return [_installed(list(triggers)) for _, triggers in by_function]


def _installed(rows: list[Mapping[str, Any]]) -> Installed:
    first = rows[0]
    table = f"{first['schema']}.{first['relation']}"
    row = AttachedRow.of({**first, "named": table}) if first["id"] is not None else older.read(table, first)
    return Installed(
        attachment=row.wanted,
        number=first["id"],
        oid=first["oid"],
        quoted_table=first["quoted"],
        triggers=tuple(Trigger(row["name"], row["enabled"]) for row in rows if row["name"] is not None),
        function=first["function"],
        function_schema=first["function_schema"],
        path=row.path,
        needs_row_triggers=first["needs_row_triggers"],
        partitions=row.partitions,
        elsewhere=_elsewhere(first) if row.wanted.via is None else "",
        in_transaction=row.wanted.via is not None and not first["writes_fanouts"],
    )


def _elsewhere(row: Mapping[str, Any]) -> str:
    if row["to_log"] == row["log_is_on"]:
        return ""
    return "search_outbox_log" if row["to_log"] else "search_outbox_events"


_UNREADABLE = (psycopg.ProgrammingError, psycopg.DataError, psycopg.errors.QueryCanceled)


@dataclass(frozen=True, slots=True)
class AttachmentFacts:
    """What `outbox doctor` asks of one. What could not be read is empty or None."""

    there: Installed
    missing_columns: tuple[str, ...]
    open_partitions: tuple[TablePartition, ...]  # TRUNCATE is not refused there: the table itself, or what came since
    partitions_gone: int
    via_error: str
    via_scans: str
    has_documents: bool | None


def read_facts(conn: psycopg.Connection[Any], view: str) -> list[AttachmentFacts]:
    found = documents_view.find(conn, view)
    return [_facts_of(conn, each, found) for each in installed(conn)]


def _facts_of(conn: psycopg.Connection[Any], each: Installed, view: DocumentsView) -> AttachmentFacts:
    columns, partitions = read_columns(conn, each.oid), read_partitions(conn, each.oid)
    named = (each.attachment.id_column, *each.attachment.columns)
    missing = tuple(name for name in named if name is not None and name not in columns)
    open_ones = tuple(part for part in partitions if not part.guarded)
    gone = max(0, each.partitions - len(partitions) + len(open_ones))
    return AttachmentFacts(each, missing, open_ones, gone, *_via(conn, each), _has_documents(conn, each, view))


def _via(conn: psycopg.Connection[Any], each: Installed) -> tuple[str, str]:
    """Why the query does not plan any more, and what it reads as a whole. Only a query in a row of ours is planned."""
    if each.attachment.via is None or each.number is None:
        return "", ""
    try:
        return "", via.scans(conn, sql.SQL(each.quoted_table), each.attachment.via, each.path)
    except psycopg.errors.InsufficientPrivilege:  # this role need not have a projector's rights
        return "", ""
    except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.DataError) as error:
        return error.diag.message_primary or type(error).__name__, ""


def _has_documents(conn: psycopg.Connection[Any], each: Installed, view: DocumentsView) -> bool | None:
    """None where the view or the table cannot be read: then nothing can be said."""
    if not view.columns or each.attachment.older:
        return None
    with suppress(*_UNREADABLE), conn.transaction():
        return view.has_type(conn, each.attachment.entity_type, sql.SQL(each.quoted_table), each.oid)
    return None
