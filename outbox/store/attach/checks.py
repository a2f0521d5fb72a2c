"""Owns judging whether a table can be attached as it was asked for; it changes nothing.

A trigger that fails would fail the user's own writes: what can be foreseen is refused here, all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from outbox.ports import Attachment
from outbox.store.attach import tables
from outbox.store.attach import via as vias
from outbox.store.attach.tables import CannotAttach, Column, SourceTable, TypeFit, always_stored, fit, read_columns
from outbox.store.attach.via import Via


@dataclass(frozen=True, slots=True)
class Checked:
    """It can be attached. `watched`: an UPDATE counts where one of these columns changes; none: every UPDATE counts."""

    watched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check(conn: psycopg.Connection[Any], source: SourceTable, wanted: Attachment, view: str | None) -> Checked:
    """Raise CannotAttach with everything that stands in the way."""
    first = [*_word_problems(wanted), *tables.table_problems(conn, source), *_column_problems(source, wanted)]
    if first:
        raise CannotAttach(first)
    via = vias.check(conn, source, wanted.via) if wanted.via is not None else Via(())
    id = via.id if wanted.via is not None else source.columns[wanted.id_column or ""]
    shape = _view_columns(conn, view)
    problems = [
        *via.problems,
        *_whole_row_problems(source, wanted, via),
        *(_id_problems(source, wanted, id) if id is not None else ()),
        *(_view_problems(wanted, id, shape, view or "") if id is not None and not wanted.payload else ()),
    ]
    if problems:
        raise CannotAttach(problems)
    return Checked(_watched(wanted, via), tuple(_notes(conn, source, wanted, id, shape)))


def _word_problems(wanted: Attachment) -> Iterator[str]:
    words = [wanted.entity_type, wanted.id_column, wanted.via, wanted.routing_column, *wanted.columns]
    for word in words:
        if word is not None and ("\0" in word or not _is_text(word)):
            yield f"{word!r} is no text that PostgreSQL can store."
    if not wanted.entity_type.strip():
        yield "the type is empty. Give the kind of entity, for example article."
    if ":" in wanted.entity_type:
        yield f"the type {wanted.entity_type!r} has a colon, which separates type and id in a document's _id."
    if (wanted.id_column is None) == (wanted.via is None):
        yield "give one of --id COLUMN and --via QUERY: it says whose document a changed row belongs to."
    if wanted.payload and wanted.via is not None:
        yield "--payload sends the row itself, and --via names other entities. Leave out one of them."
    if wanted.payload and wanted.columns:
        yield "--payload sends the row with every change of it. Leave out --columns, or attach without --payload."


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _column_problems(source: SourceTable, wanted: Attachment) -> Iterator[str]:
    named = [name for name in (wanted.id_column, wanted.routing_column, *wanted.columns) if name is not None]
    for name in dict.fromkeys(named):
        if name not in source.columns:
            yield f"{source.shown} has no column {name}. It has {', '.join(sorted(source.columns))}."
        elif source.columns[name].is_virtual:
            yield (
                f"column {name} is a virtual generated column, which triggers do not see. Name the columns that it is "
                "computed from, or make it STORED."
            )
    if wanted.payload:
        yield from _payload_problems(source, wanted)


def _payload_problems(source: SourceTable, wanted: Attachment) -> Iterator[str]:
    id = wanted.id_column
    if id in source.columns and id not in source.unique:
        yield (
            f"column {id} does not name one row by itself: with --payload it must be NOT NULL and have a unique index "
            "on it alone, or a delete of one row would delete another's document. Add that index, name a column that "
            "has one, or leave out --payload: then the document is read from the view."
        )
    virtual = [column.name for column in source.columns.values() if column.is_virtual and column.name != id]
    if virtual:
        yield (
            f"{', '.join(virtual)}: virtual generated columns are null in a payload. Make them STORED, or leave out "
            "--payload: then the document is read from the view."
        )


def _whole_row_problems(source: SourceTable, wanted: Attachment, via: Via) -> Iterator[str]:
    if via.whole_row and wanted.columns:
        yield "--via reads the whole row `changed`, so every column counts. Name columns in it, or leave out --columns."
    if via.whole_row and any(column.is_virtual for column in source.columns.values()):
        yield "--via reads the whole row `changed`; triggers do not see its virtual generated columns. Name columns."


def _id_problems(source: SourceTable, wanted: Attachment, id: Column) -> Iterator[str]:
    """`id` is a column of the table, or of the query."""
    what = f"column {id.name}" if wanted.via is None else "--via"
    if not wanted.payload and wanted.via is None and not id.names_an_entity:
        yield (
            f"{what} is of type {id.shown}, whose text is not the same in every session, so it cannot name an entity. "
            f"Use --via with a query that makes it text, for example with to_char(changed.{id.name}, ...)."
        )
    elif not always_stored(id, source.events_id):
        yield (
            f"{what} gives ids of type {id.shown}, which search_outbox_events.entity_id ({source.events_id.shown}) "
            "cannot always store: writes would fail. Make that column text, or use ids of its type."
        )
    routing = source.columns.get(wanted.routing_column or "")
    if routing is not None and not always_stored(routing, source.events_columns["routing"]):
        yield f"search_outbox_events.routing cannot always store column {routing.name}. Make that column text."
    longest = source.events_columns["entity_type"].length
    if longest is not None and len(wanted.entity_type) > longest:
        yield f"search_outbox_events.entity_type stores {longest} characters. Give a shorter type, or make it text."


def _view_problems(wanted: Attachment, id: Column, shape: dict[str, Column], view: str) -> Iterator[str]:
    if wanted.routing_column is not None and "routing" not in shape:
        yield (
            f"--routing needs the column `routing` of {view or 'the view'}: it says where a document is now, and the "
            "event where it was. Add it to the view first, or leave out --routing."
        )
    if "entity_id" in shape and fit(id, shape["entity_id"]) is TypeFit.NO:
        what = f"column {id.name} is" if wanted.via is None else "--via returns"
        yield (
            f"{what} {id.shown}, and ids of {view} are {shape['entity_id'].shown}: no event would find its document. "
            "Name the column, or write the query, that gives such ids."
        )


def _view_columns(conn: psycopg.Connection[Any], view: str | None) -> dict[str, Column]:
    if view is None:
        return {}
    name = sql.Identifier(*view.split(".")).as_string(conn)
    row = conn.execute("select to_regclass(%s)::oid::bigint", [name]).fetchone()
    return read_columns(conn, row[0]) if row and row[0] is not None else {}


def _watched(wanted: Attachment, via: Via) -> tuple[str, ...]:
    """What decides whose document it is counts too, beside the columns that were asked for."""
    if not wanted.columns:
        return ()
    others = (wanted.id_column, wanted.routing_column, *via.used)
    return tuple(dict.fromkeys((*wanted.columns, *(name for name in others if name is not None))))


def _notes(
    conn: psycopg.Connection[Any], source: SourceTable, wanted: Attachment, id: Column | None, shape: dict[str, Column]
) -> Iterator[str]:
    reason = tables.row_trigger_reason(source, wanted.columns)
    if reason and not (wanted.payload or wanted.per_row):
        yield f"triggers fire for each row: {reason}"
    if wanted.payload and source.unique.get(wanted.id_column or ""):
        yield (
            f"PostgreSQL keeps {wanted.id_column} unique only together with the partition key: two rows with one "
            f"{wanted.id_column} in two partitions would be one document"
        )
    if not wanted.payload and id is not None and "entity_id" in shape and fit(id, shape["entity_id"]) is TypeFit.MAYBE:
        yield f"ids are {id.shown} here and {shape['entity_id'].shown} in the view: events whose id is none there fail"
    if wanted.via is not None and (scans := vias.scans(conn, source.name, wanted.via)):
        yield f"each change runs --via, which reads a large table as a whole: {scans}. Add an index"
