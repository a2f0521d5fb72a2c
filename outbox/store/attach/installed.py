"""Owns what is known of attached tables: reads the triggers that are installed, and what `outbox doctor` asks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import psycopg
from psycopg import sql

from outbox.ports import Attachment, AttachmentFacts
from outbox.store.attach import via
from outbox.store.attach.tables import read_columns
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
    """An attachment with the triggers and the function that it has."""

    attachment: Attachment
    oid: int
    quoted_table: str
    triggers: tuple[Trigger, ...]
    function: sql.Identifier
    path: str | None
    needs_row_triggers: bool
    elsewhere: str
    """The table that it writes to, where that is not the one that producers write to now."""

    @property
    def command(self) -> str:
        return self.attachment.command(self.quoted_table)

    @property
    def missing_triggers(self) -> tuple[str, ...]:
        wanted = ROW_TRIGGERS if self.attachment.per_row else STATEMENT_TRIGGERS
        there = {trigger.name.removeprefix(PREFIX).rpartition("_")[2] for trigger in self.triggers}
        return () if there == {""} else tuple(name for name in wanted if name not in there)


def installed(conn: psycopg.Connection[Any]) -> list[Installed]:
    """Every attachment of this database, by table. Found by its triggers: tables and columns get other names."""
    rows = fetch_rows(conn, queries("producers")["installed"], {})
    rows.sort(key=lambda row: (row["schema"], row["relation"], row["function_oid"]))
    by_function = groupby(rows, key=lambda row: (row["oid"], row["function_oid"]))
    return [_installed(list(triggers)) for _, triggers in by_function]


def attachments(conn: psycopg.Connection[Any]) -> list[Attachment]:
    return [each.attachment for each in installed(conn)]


def renewals(conn: psycopg.Connection[Any]) -> Iterator[str]:
    """The commands that renew attachments of an older form."""
    return (each.command for each in installed(conn) if each.attachment.older)


def about(attachment: Attachment) -> str:
    """The trigger's argument. It serves only this: telling people and later commands how the table is attached."""
    told = {
        "type": attachment.entity_type,
        "id": attachment.id_column,
        "via": attachment.via,
        "routing": attachment.routing_column,
        "payload": attachment.payload,
        "columns": attachment.columns,
        "per_row": attachment.per_row,
    }
    return json.dumps({name: value for name, value in told.items() if value})


def _installed(rows: list[Mapping[str, Any]]) -> Installed:
    first = rows[0]
    return Installed(
        attachment=_attachment_of(first),
        oid=first["oid"],
        quoted_table=first["quoted"],
        triggers=tuple(Trigger(row["name"], row["enabled"]) for row in rows),
        function=sql.Identifier(first["function_schema"], first["function"]),
        path=first["path"],
        needs_row_triggers=first["needs_row_triggers"],
        elsewhere=_elsewhere(first),
    )


def _elsewhere(row: Mapping[str, Any]) -> str:
    if row["to_log"] == row["log_is_on"]:
        return ""
    return "search_outbox_log" if row["to_log"] else "search_outbox_events"


def _attachment_of(row: Mapping[str, Any]) -> Attachment:
    table = f"{row['schema']}.{row['relation']}"
    arguments = bytes(row["about"]).decode(errors="replace").split("\0")
    if row["arguments"] > 1:
        entity_type, id_column, routing, payload = arguments[:4]
        older = Attachment(table, entity_type, id_column, routing_column=routing or None, per_row=True)
        return replace(older, payload=True) if payload else replace(older, older=True)
    told = json.loads(arguments[0])
    return Attachment(
        table,
        told["type"],
        id_column=told.get("id"),
        via=told.get("via"),
        routing_column=told.get("routing"),
        payload=told.get("payload", False),
        columns=tuple(told.get("columns", ())),
        per_row=told.get("per_row", False),
    )


_UNREADABLE = (psycopg.ProgrammingError, psycopg.DataError, psycopg.errors.QueryCanceled)


def read_facts(conn: psycopg.Connection[Any], view: str) -> list[AttachmentFacts]:
    has_view = _has_view(conn, view)
    return [_facts_of(conn, each, view if has_view else None) for each in installed(conn)]


def _facts_of(conn: psycopg.Connection[Any], each: Installed, view: str | None) -> AttachmentFacts:
    how = each.attachment
    columns = read_columns(conn, each.oid)
    unique = {name for name, _ in conn.execute(queries("producers")["unique_columns"], {"oid": each.oid})}
    named = (how.id_column, how.routing_column, *how.columns)
    error, scans = _via(conn, each)
    return AttachmentFacts(
        table=how.table,
        entity_type=how.entity_type,
        shown=how.shown,
        command=each.command,
        older=how.older,
        elsewhere=each.elsewhere,
        missing_triggers=each.missing_triggers,
        disabled_triggers=tuple(t.name for t in each.triggers if t.enabled in "DR"),
        replica_blind_triggers=tuple(t.name for t in each.triggers if t.enabled == "O"),
        misses_rows=each.needs_row_triggers and not how.per_row,
        missing_columns=tuple(name for name in named if name is not None and name not in columns),
        shared_id=how.payload and how.id_column in columns and how.id_column not in unique,
        truncatable=tuple(_truncatable(conn, each)),
        via_error=error,
        via_scans=scans,
        has_documents=_has_documents(conn, each, view),
    )


def _truncatable(conn: psycopg.Connection[Any], each: Installed) -> Iterator[str]:
    for (name,) in conn.execute(queries("producers")["without_truncate_guard"], {"oid": each.oid}):
        yield name


def _via(conn: psycopg.Connection[Any], each: Installed) -> tuple[str, str]:
    """Why the query does not plan any more, and what it reads as a whole."""
    if each.attachment.via is None:
        return "", ""
    try:
        return "", via.scans(conn, sql.SQL(each.quoted_table), each.attachment.via, each.path)
    except psycopg.errors.InsufficientPrivilege:  # a reader need not have the right to write
        return "", ""
    except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.DataError) as error:
        return error.diag.message_primary or type(error).__name__, ""


def _has_view(conn: psycopg.Connection[Any], view: str) -> bool:
    row = conn.execute(
        "select to_regclass(%s) is not null", [sql.Identifier(*view.split(".")).as_string(conn)]
    ).fetchone()
    return row == (True,)


def _has_documents(conn: psycopg.Connection[Any], each: Installed, view: str | None) -> bool | None:
    """None where the view or the table cannot be read, or the table is empty: then nothing can be said."""
    if view is None or each.attachment.payload:
        return None
    asking = sql.SQL(queries("producers")["has_entity_type"]).format(view=sql.Identifier(*view.split(".")))
    filled = sql.SQL("select exists (select from {})").format(sql.SQL(each.quoted_table))
    with suppress(*_UNREADABLE), conn.transaction():
        if conn.execute(filled).fetchone() != (True,):
            return None
        return conn.execute(asking, {"entity_type": each.attachment.entity_type}).fetchone() == (True,)
    return None
