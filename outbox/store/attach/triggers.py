"""Owns the text of the triggers and the function of one attachment; it executes none of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from outbox.policy.entity_type import BY_VIEW
from outbox.policy.event import DELETE, REFRESH
from outbox.ports import Attachment
from outbox.store.attach import installed, via
from outbox.store.attach.installed import PREFIX, ROW_TRIGGERS, STATEMENT_TRIGGERS
from outbox.store.attach.tables import SourceTable
from outbox.store.schema import files

Session = psycopg.Connection[Any]

NO_TRUNCATE = "search_outbox_no_truncate"
_OLD, _NEW = sql.SQL("search_outbox_old"), sql.SQL("search_outbox_new")
_NOTHING = sql.SQL("null::text")
_LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL; it cuts off what is longer."""


def trigger_names(wanted: Attachment) -> dict[str, str]:
    """One per operation, or one for all where it fires for each row. Unique on its table, and the same when renewed."""
    unique = _hash(*wanted.way)
    kinds = ROW_TRIGGERS if wanted.per_row else STATEMENT_TRIGGERS
    return {
        kind: f"{_cut(f'{PREFIX}_{wanted.entity_type}', len(unique) + len(kind) + 2)}_{unique}_{kind}" for kind in kinds
    }


def function_name(source: SourceTable, wanted: Attachment) -> sql.Identifier:
    """By the table's oid, not by its name: another table may get that name later."""
    unique = _hash(str(source.oid), *wanted.way)
    table = source.relation.encode()[:18].decode(errors="ignore")
    readable = _cut(f"{PREFIX}_{table}_{wanted.entity_type}", len(unique) + 1)
    return sql.Identifier(source.outbox_schema, f"{readable}_{unique}")


def statements(
    conn: Session,
    source: SourceTable,
    wanted: Attachment,
    function: sql.Identifier,
    path: Sequence[str],
    watched: Sequence[str],
) -> list[sql.Composed]:
    """What installs or renews it. `watched`: on an UPDATE, only rows in which one of these changed count."""
    body = _refresh(conn, source, wanted, watched)
    schemas = sql.SQL(", ").join(sql.Identifier(schema) for schema in (*path, "pg_temp"))
    triggers = {kind: sql.Identifier(name) for kind, name in trigger_names(wanted).items()}
    made = _template("function").format(function=function, path=schemas, body=_quoted(conn, body))
    about = installed.about(wanted, len(source.partitions) if source.kind == "p" else 0)
    put = _template("each_row" if wanted.per_row else "each_statement").format(
        table=source.name, function=function, about=sql.Literal(about), **triggers
    )
    return [made, put, *(_refuse_truncate(source, part.name) for part in source.partitions)]


def declare(conn: Session, source: SourceTable, wanted: Attachment) -> sql.Composed:
    """The view keeps the entity type."""
    body = _template("declare").format(
        types=sql.Identifier(source.outbox_schema, "search_outbox_entity_types"),
        type=sql.Literal(wanted.entity_type),
        kept_by=sql.Literal(BY_VIEW.kept_by.value),
        versions=sql.Literal(BY_VIEW.versions.value),
    )
    return sql.SQL("do {}").format(_quoted(conn, body))


def drop_trigger(name: str, table: sql.Identifier) -> sql.Composed:
    return sql.SQL("drop trigger if exists {} on {}").format(sql.Identifier(name), table)


def drop_function(function: sql.Identifier) -> sql.Composed:
    return sql.SQL("drop function if exists {}()").format(function)


def _refuse_truncate(source: SourceTable, part: sql.Identifier) -> sql.Composed:
    refuse = sql.Identifier(source.outbox_schema, "search_outbox_refuse_truncate")
    return _template("refuse_truncate").format(table=part, refuse=refuse)


def _refresh(conn: Session, source: SourceTable, wanted: Attachment, watched: Sequence[str]) -> sql.Composed:
    by_operation = _by_row if wanted.per_row else _by_statement
    return _template("refresh").format(**by_operation(conn, source, wanted, watched))


def _by_statement(
    conn: Session, source: SourceTable, wanted: Attachment, watched: Sequence[str]
) -> dict[str, sql.Composable]:
    both = _changed_rows(sql.SQL("select * from {}").format(table) for table in (_OLD, _NEW))
    changed = {
        "inserted": sql.SQL("{} as changed").format(_NEW),
        "updated": _changed_columns(source, wanted, watched) if watched else both,
        "deleted": sql.SQL("{} as changed").format(_OLD),
    }
    ops = {"deleted": _op_of_delete(source, wanted)}
    return {
        when: _run(conn, _events(source, wanted, rows, ops.get(when, REFRESH)), wanted)
        for when, rows in changed.items()
    }


def _run(conn: Session, events: sql.Composed, wanted: Attachment) -> sql.Composable:
    """A query of --via is planned anew each time (0.4 ms): a plan for one changed row is slow for 100,000, and a plan
    for 100,000 reads whole tables for one."""
    if wanted.via is None:
        return events
    return sql.SQL("execute {}").format(_quoted(conn, events))


def _by_row(
    conn: Session, source: SourceTable, wanted: Attachment, watched: Sequence[str]
) -> dict[str, sql.Composable]:
    updated = _row_events(conn, source, wanted, ("old", "new"))
    if watched:
        updated = sql.SQL("if {} then\n{};\nend if").format(_differs("old", "new", watched), updated)
    return {
        "inserted": _row_events(conn, source, wanted, ("new",)),
        "updated": updated,
        "deleted": _row_events(conn, source, wanted, ("old",), _op_of_delete(source, wanted)),
    }


def _op_of_delete(source: SourceTable, wanted: Attachment) -> str:
    """What the end of a row means. By a column that names one row, and no row of another table, it is the entity's own
    row: the event says so, and is looked up all the same. A view that has lost so many is none that is broken."""
    return DELETE if source.is_own(wanted.id_column) and wanted.via is None else REFRESH


def _row_events(
    conn: Session, source: SourceTable, wanted: Attachment, rows: Sequence[str], op: str = REFRESH
) -> sql.Composed:
    """By a column the plan is kept for the session; a query of --via gets the rows as parameters."""
    if wanted.via is None:
        picked = (_picked(row, _needed(wanted)) for row in rows)
        return _events(source, wanted, _changed_rows(picked), op)
    whole = (sql.SQL("select (${}).*").format(sql.Literal(place)) for place in range(1, len(rows) + 1))
    return sql.SQL("execute {} using {}").format(
        _quoted(conn, _events(source, wanted, _changed_rows(whole), op)), sql.SQL(", ").join(map(sql.Identifier, rows))
    )


def _picked(row: str, columns: Sequence[str]) -> sql.Composed:
    each = (sql.SQL("{} as {}").format(sql.Identifier(row, name), sql.Identifier(name)) for name in columns)
    return sql.SQL("select {}").format(sql.SQL(", ").join(each))


def _changed_rows(selects: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL("({}) as changed").format(sql.SQL(" union all ").join(selects))


def _events(source: SourceTable, wanted: Attachment, changed: sql.Composable, op: str) -> sql.Composed:
    by_id = sql.Identifier("changed", wanted.id_column or "")
    return _template("refresh_events").format(
        events=source.events,
        type=sql.Literal(wanted.entity_type),
        op=sql.Literal(op),
        id_type=_id_type(source),
        id=by_id if wanted.via is None else sql.Identifier("via", "id"),
        routing=_text("changed", wanted.routing_column),
        changed=changed if wanted.via is None else via.joined(changed, wanted.via),
    )


def _id_type(source: SourceTable) -> sql.Identifier:
    """An adopted table keeps its own column type (uuid, say), which text does not become by itself."""
    return sql.Identifier(source.events_id.base_schema, source.events_id.base)


def _changed_columns(source: SourceTable, wanted: Attachment, watched: Sequence[str]) -> sql.Composed:
    """The rows of an UPDATE in which one of these changed: whole for a query of --via, else what an event needs."""
    key = source.primary_key
    pairs = (
        sql.SQL('{}::text collate pg_catalog."C" = {}::text').format(
            sql.Identifier("before", name), sql.Identifier("after", name)
        )
        for name in key
    )
    paired = {
        "same_row": sql.SQL(" and ").join(pairs),
        "after_gone": sql.SQL("{} is null").format(sql.Identifier("after", key[0])),
        "before_gone": sql.SQL("{} is null").format(sql.Identifier("before", key[0])),
        "differs": _differs("before", "after", watched),
    }
    if wanted.via is not None:
        return _template("changed_columns").format(**paired)
    needed = _needed(wanted)
    before, after = (sql.SQL(", ").join(sql.Identifier(row, name) for name in needed) for row in ("before", "after"))
    names = sql.SQL(", ").join(map(sql.Identifier, needed))
    return _template("changed_ids").format(before=before, after=after, names=names, **paired)


def _needed(wanted: Attachment) -> list[str]:
    """The columns that an event is made of."""
    return list(dict.fromkeys(name for name in (wanted.id_column, wanted.routing_column) if name is not None))


def _differs(old: str, new: str, columns: Sequence[str]) -> sql.Composed:
    """By what is stored: some types have no equality, and some take for equal what reads otherwise."""
    rows = (sql.SQL(", ").join(sql.Identifier(row, name) for name in columns) for row in (old, new))
    return sql.SQL("pg_catalog.record_image_ne(row({}), row({}))").format(*rows)


def _text(row: str, column: str | None) -> sql.Composable:
    return sql.SQL("{}::text").format(sql.Identifier(row, column)) if column else _NOTHING


def _quoted(conn: Session, text: sql.Composable) -> sql.Literal:
    """SQL as a text inside other SQL."""
    return sql.Literal(text.as_string(conn))


def _hash(*words: str | None) -> str:
    return sha256("\0".join(word or "" for word in words).encode()).hexdigest()[:8]


def _cut(readable: str, rest: int) -> str:
    return readable.encode()[: _LONGEST_NAME - rest].decode(errors="ignore")


def _template(name: LiteralString) -> sql.SQL:
    return sql.SQL(files.producer(name))
