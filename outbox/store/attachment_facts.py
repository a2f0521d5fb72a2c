"""Looks at attachments as `outbox doctor` does: what is there, not whether that is good. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from outbox.ports import AttachmentFacts
from outbox.store import attached, producer_via
from outbox.store.attached import Installed
from outbox.store.producer_columns import read_columns
from outbox.store.queries import queries

_UNREADABLE = (psycopg.ProgrammingError, psycopg.DataError, psycopg.errors.QueryCanceled)


def read(conn: psycopg.Connection[Any], view: str) -> list[AttachmentFacts]:
    has_view = _has_view(conn, view)
    return [_facts(conn, each, view if has_view else None) for each in attached.installed(conn)]


def _facts(conn: psycopg.Connection[Any], each: Installed, view: str | None) -> AttachmentFacts:
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
        return "", producer_via.scans(conn, sql.SQL(each.quoted_table), each.attachment.via, each.path)
    except psycopg.errors.InsufficientPrivilege:  # whoever looks need not be who writes
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
