"""Owns judging whether a table can be attached as it was asked for; it changes nothing.

A trigger that fails would fail the user's own writes: what can be foreseen is refused here, all of it at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from outbox.ports import Attachment
from outbox.store.attach import documents_view, tables
from outbox.store.attach import via as vias
from outbox.store.attach.documents_view import DocumentsView
from outbox.store.attach.tables import CannotAttach, Column, SourceTable, always_stored, may_fit
from outbox.store.attach.via import Via
from outbox.store.schema import declaring


@dataclass(frozen=True, slots=True)
class Checked:
    """It can be attached. `watched`: an UPDATE counts where one of these columns changes; none: every UPDATE counts.
    `used`: the columns of the changed row that the query of --via reads."""

    watched: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check(
    conn: psycopg.Connection[Any],
    source: SourceTable,
    wanted: Attachment,
    view: str,
    *,
    rows: bool,
) -> Checked:
    """Raise CannotAttach with everything that stands in the way."""
    first = [
        *_word_problems(wanted),
        *tables.table_problems(conn, source),
        *_column_problems(source, wanted),
        *_unfinished(conn, wanted),
    ]
    if first:
        raise CannotAttach(first)
    found = documents_view.find(conn, view)
    found.shape.check_ids()
    lacks = rows and not found.has_type(conn, wanted.entity_type, source.name, source.oid)
    if second := list(found.problems(conn, source, wanted, lacks)):
        raise CannotAttach(second)
    via = vias.check(conn, source, wanted.via) if wanted.via is not None else Via(())
    id = via.id if wanted.via is not None else source.columns[wanted.id_column or ""]
    problems = [
        *via.problems,
        *_whole_row_problems(source, wanted, via),
        *(_id_problems(source, wanted, id) if id is not None else ()),
        *(_view_problems(wanted, id, found) if id is not None else ()),
    ]
    if problems:
        raise CannotAttach(problems)
    return Checked(_watched(wanted, via), via.used, (*via.notes, *_notes(conn, source, wanted, found)))


def _word_problems(wanted: Attachment) -> Iterator[str]:
    words = [wanted.entity_type, wanted.id_column, wanted.via, *wanted.columns]
    for word in words:
        if word is not None and "\0" in word:
            yield f"{word!r} is no text that PostgreSQL can store."
    if not wanted.entity_type.strip():
        yield "the type is empty. Give the kind of entity, for example article."
    if ":" in wanted.entity_type:
        yield f"the type {wanted.entity_type!r} has a colon, which separates type and id in a document's _id."
    if (wanted.id_column is None) == (wanted.via is None):
        yield "give one of --id COLUMN and --via QUERY: it says whose document a changed row belongs to."


def _unfinished(conn: psycopg.Connection[Any], wanted: Attachment) -> Iterator[str]:
    if wanted.via is not None and not declaring.is_finished(conn):
        yield (
            "--via writes events `fanout`, which a projector of an older program fails. Run `outbox migrate --finish` "
            "when none of them runs any more, then attach."
        )


def _column_problems(source: SourceTable, wanted: Attachment) -> Iterator[str]:
    named = [name for name in (wanted.id_column, *wanted.columns) if name is not None]
    for name in dict.fromkeys(named):
        if name not in source.columns:
            yield f"{source.shown} has no column {name}. It has {', '.join(sorted(source.columns))}."
        elif source.columns[name].is_virtual:
            yield (
                f"column {name} is a virtual generated column, which triggers do not see. Name the columns that it is "
                "computed from, or make it STORED."
            )


def _whole_row_problems(source: SourceTable, wanted: Attachment, via: Via) -> Iterator[str]:
    if via.whole_row and wanted.columns:
        yield "--via reads the whole row `changed`, so every column counts. Name columns in it, or leave out --columns."
    if via.whole_row and any(column.is_virtual for column in source.columns.values()):
        yield "--via reads the whole row `changed`; triggers do not see its virtual generated columns. Name columns."


def _id_problems(source: SourceTable, wanted: Attachment, id: Column) -> Iterator[str]:
    """`id` is a column of the table, or of the query."""
    what = f"column {id.name}" if wanted.via is None else "--via"
    if wanted.via is None and not id.names_an_entity:
        yield (
            f"{what} is of type {id.shown}, whose text is not the same in every session, so it cannot name an entity. "
            f"Use --via with a query that makes it text, for example with to_char(changed.{id.name}, ...)."
        )
    elif not always_stored(id, source.events_id):
        yield (
            f"{what} gives ids of type {id.shown}, which search_outbox_events.entity_id ({source.events_id.shown}) "
            "cannot always store: writes would fail. Make that column text, or use ids of its type."
        )
    longest = source.events_columns["entity_type"].length
    if longest is not None and len(wanted.entity_type) > longest:
        yield f"search_outbox_events.entity_type stores {longest} characters. Give a shorter type, or make it text."


def _view_problems(wanted: Attachment, id: Column, view: DocumentsView) -> Iterator[str]:
    ids = view.columns.get("entity_id")
    if ids is not None and not may_fit(id, ids):
        what = f"column {id.name} is" if wanted.via is None else "--via returns"
        yield (
            f"{what} {id.shown}, and ids of {view.name} are {ids.shown}: no event would find its document. "
            "Name the column, or write the query, that gives such ids."
        )


def _watched(wanted: Attachment, via: Via) -> tuple[str, ...]:
    """What decides whose document it is counts too, beside the columns that were asked for."""
    if not wanted.columns:
        return ()
    others = (wanted.id_column, *via.used)
    return tuple(dict.fromkeys((*wanted.columns, *(name for name in others if name is not None))))


def _notes(
    conn: psycopg.Connection[Any], source: SourceTable, wanted: Attachment, view: DocumentsView
) -> Iterator[str]:
    reason = tables.row_trigger_reason(source, wanted.columns)
    if reason and not wanted.per_row:
        yield f"triggers fire for each row: {reason}"
    if wanted.via is not None and (scans := vias.scans(conn, source.name, wanted.via)):
        yield f"a projector runs --via for each change, which reads a large table as a whole: {scans}. Add an index"
    if not view.columns:
        yield f"there is no view {view.name} yet: these events wait until it is created"
