"""Owns the text of the triggers and the function of one attachment; it executes none of it."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from outbox.policy.entity_type import BY_VIEW
from outbox.policy.event import DELETE, REFRESH
from outbox.ports import Attachment
from outbox.store.attach.attachments import AttachedRow
from outbox.store.attach.installed import PREFIX, ROW_TRIGGERS, STATEMENT_TRIGGERS
from outbox.store.attach.tables import SourceTable
from outbox.store.schema import files

Session = psycopg.Connection[Any]

NO_TRUNCATE = "search_outbox_no_truncate"
_OLD, _NEW = sql.SQL("search_outbox_old"), sql.SQL("search_outbox_new")
_ALL = sql.SQL("select * from {}")
_LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL; it cuts off what is longer."""


def trigger_names(wanted: Attachment) -> dict[str, str]:
    """One per operation, or one for all where it fires for each row. Unique on its table, and the same when renewed."""
    unique = _hash(*wanted.way)
    kinds = ROW_TRIGGERS if wanted.per_row else STATEMENT_TRIGGERS
    return {
        kind: f"{_cut(f'{PREFIX}_{wanted.entity_type}', len(unique) + len(kind) + 2)}_{unique}_{kind}" for kind in kinds
    }


def function_name(source: SourceTable, wanted: Attachment) -> str:
    """By the table's oid, not by its name: another table may get that name later."""
    unique = _hash(str(source.oid), *wanted.way)
    table = source.relation.encode()[:18].decode(errors="ignore")
    readable = _cut(f"{PREFIX}_{table}_{wanted.entity_type}", len(unique) + 1)
    return f"{readable}_{unique}"


def statements(conn: Session, source: SourceTable, row: AttachedRow) -> list[sql.Composed]:
    function = sql.Identifier(source.outbox_schema, row.function)
    schemas = sql.SQL(", ").join(sql.Identifier(schema) for schema in (*row.path, "pg_temp"))
    triggers = {kind: sql.Identifier(name) for kind, name in trigger_names(row.wanted).items()}
    by_operation = _by_row if row.wanted.per_row else _by_statement
    body = _template("refresh").format(**by_operation(source, row))
    made = _template("function").format(function=function, path=schemas, body=_quoted(conn, body))
    put = _template("each_row" if row.wanted.per_row else "each_statement").format(
        table=source.name, function=function, about=sql.Literal(str(row.number)), **triggers
    )
    refuse = sql.Identifier(source.outbox_schema, "search_outbox_refuse_truncate")
    guards = (_template("refuse_truncate").format(table=part.name, refuse=refuse) for part in source.partitions)
    return [made, put, *guards]


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


def _by_statement(source: SourceTable, row: AttachedRow) -> dict[str, sql.Composable]:
    changed = {
        "inserted": sql.SQL("{} as changed").format(_NEW),
        "updated": _changed_columns(source, row) if row.watched else _changed_rows(*map(_ALL.format, (_OLD, _NEW))),
        "deleted": sql.SQL("{} as changed").format(_OLD),
    }
    ops = {"deleted": _op_of_delete(source, row.wanted)}
    return {when: _events(source, row, rows, ops.get(when, REFRESH)) for when, rows in changed.items()}


def _by_row(source: SourceTable, row: AttachedRow) -> dict[str, sql.Composable]:
    old, new = (_picked(which, _needed(source, row)) for which in ("old", "new"))
    updated = _events(source, row, _changed_rows(old, new), REFRESH)
    if row.watched:
        updated = sql.SQL("if {} then\n{};\nend if").format(_differs("old", "new", row.watched), updated)
    return {
        "inserted": _events(source, row, _changed_rows(new), REFRESH),
        "updated": updated,
        "deleted": _events(source, row, _changed_rows(old), _op_of_delete(source, row.wanted)),
    }


def _op_of_delete(source: SourceTable, wanted: Attachment) -> str:
    """What the end of a row means. By a column that names one row, and no row of another table, it is the entity's own
    row: the event says so, and is looked up all the same. A view that has lost so many is none that is broken."""
    return DELETE if source.is_own(wanted.id_column) and wanted.via is None else REFRESH


def _picked(row: str, columns: Sequence[str]) -> sql.Composed:
    each = (sql.SQL("{} as {}").format(sql.Identifier(row, name), sql.Identifier(name)) for name in columns)
    return sql.SQL("select {}").format(sql.SQL(", ").join(each))


def _changed_rows(*selects: sql.Composable) -> sql.Composed:
    return sql.SQL("({}) as changed").format(sql.SQL(" union all ").join(selects))


def _events(source: SourceTable, row: AttachedRow, changed: sql.Composable, op: str) -> sql.Composed:
    if row.wanted.via is not None:
        return _fanouts(source, row, changed)
    return _template("refresh_events").format(
        events=source.events,
        type=sql.Literal(row.wanted.entity_type),
        op=sql.Literal(op),
        # An adopted table keeps its own column type (uuid, say), which text does not become by itself.
        id_type=sql.Identifier(source.events_id.base_schema, source.events_id.base),
        id=sql.Identifier("changed", row.wanted.id_column or ""),
        changed=changed,
    )


def _fanouts(source: SourceTable, row: AttachedRow, changed: sql.Composable) -> sql.Composed:
    """One event per changed row: rows with equal keys are one, so an update that leaves them alone writes one. They are
    always written to search_outbox_events, where projectors find them whatever producers write to."""
    columns = [sql.Identifier("changed", name) for name in row.used]
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(column) for column in columns)
    named = sql.SQL("pg_catalog.left(pg_catalog.concat_ws(',', {}), 512)").format(texts)
    return _template("fanout_events").format(
        events=sql.Identifier(source.outbox_schema, "search_outbox_events"),
        type=sql.Literal(row.wanted.entity_type),
        number=sql.Literal(row.number),
        key=_fanout_id(source),
        named=named if columns else sql.SQL("''::text"),
        used=sql.SQL(", ").join(columns),
        changed=changed,
    )


def _fanout_id(source: SourceTable) -> sql.Composable:
    """The key as an id, for people; an adopted table may have another type for ids, which then is a hash of it."""
    return {
        "uuid": sql.SQL("pg_catalog.md5(written.key)::uuid"),
        "int8": sql.SQL("pg_catalog.hashtextextended(written.key, 0)"),
        "int4": sql.SQL("pg_catalog.hashtext(written.key)"),
    }.get(source.events_id.base, sql.SQL("written.key"))


def _changed_columns(source: SourceTable, row: AttachedRow) -> sql.Composed:
    """Of the rows of an UPDATE in which one of the watched columns changed: what an event needs, old and new."""
    key, needed = source.primary_key, _needed(source, row)
    same = sql.SQL('{}::text collate pg_catalog."C" = {}::text')
    pairs = (same.format(sql.Identifier("before", name), sql.Identifier("after", name)) for name in key)
    return _template("changed_ids").format(
        same_row=sql.SQL(" and ").join(pairs),
        after_gone=sql.SQL("{} is null").format(sql.Identifier("after", key[0])),
        before_gone=sql.SQL("{} is null").format(sql.Identifier("before", key[0])),
        differs=_differs("before", "after", row.watched),
        before=_columns("before", needed),
        after=_columns("after", needed),
        names=sql.SQL(", ").join(map(sql.Identifier, needed)),
    )


def _columns(row: str, names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(row, name) for name in names)


def _needed(source: SourceTable, row: AttachedRow) -> list[str]:
    """The columns that an event is made of; the first of the table where a query uses none."""
    named = (row.wanted.id_column, *row.used)
    return list(dict.fromkeys(name for name in named if name is not None)) or list(source.columns)[:1]


def _differs(old: str, new: str, columns: Sequence[str]) -> sql.Composed:
    """By what is stored: some types have no equality, and some take for equal what reads otherwise."""
    rows = (_columns(row, columns) for row in (old, new))
    return sql.SQL("pg_catalog.record_image_ne(row({}), row({}))").format(*rows)


def _quoted(conn: Session, text: sql.Composable) -> sql.Literal:
    return sql.Literal(text.as_string(conn))


def _hash(*words: str | None) -> str:
    return sha256("\0".join(word or "" for word in words).encode()).hexdigest()[:8]


def _cut(readable: str, rest: int) -> str:
    return readable.encode()[: _LONGEST_NAME - rest].decode(errors="ignore")


def _template(name: LiteralString) -> sql.SQL:
    return sql.SQL(files.text("producers", name))
