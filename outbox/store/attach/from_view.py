"""Owns `outbox attach --from-view`: which attachments the view of documents needs beside those that are there.

All of them are installed in one transaction, or none."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import psycopg
from psycopg import sql

from outbox.errors import OutboxError, SchemaMismatch
from outbox.policy.derive.derivation import Derivation, Derived, NotDerived, derive
from outbox.ports import Attachment, PlannedAttachment, ViewPlan
from outbox.store.attach import attach, installed, tables
from outbox.store.attach.installed import Installed
from outbox.store.attach.tables import CannotAttach, SourceTable
from outbox.store.attach.view_reads import read_catalogue
from outbox.store.queries import queries
from outbox.store.view_shape import MATERIALISED, NEEDED_COLUMNS

Connection = psycopg.Connection[Any]


class CannotDerive(CannotAttach):
    """The attachments that the view needs cannot all be derived from it, so nothing was attached. Do what is listed for
    each, then run the command again."""


def plan(conn: Connection, view: str) -> ViewPlan:
    """Derive, and have PostgreSQL check each attachment. Changes nothing."""
    if conn.execute(queries("producers")["outbox_schema"]).fetchone() is None:
        raise SchemaMismatch("search_outbox_events is not there")
    found = derived(conn, view)
    there = installed.installed(conn)
    problems = [*found.problems, *(_told(each) for each in found.refused if not _is_by_hand(each, there))]
    planned: list[PlannedAttachment] = []
    for each in found.attachments:
        try:
            planned.append(_planned(conn, each, view, there))
        except SchemaMismatch:
            raise
        except OutboxError as error:
            why = error.problems if isinstance(error, CannotAttach) else (error.message,)
            problems += [f"{each.relation.sql} as {each.entity_type}: {problem}" for problem in why]
    return ViewPlan(tuple(planned), tuple(dict.fromkeys(problems)))


def attach_all(conn: Connection, view: str) -> ViewPlan:
    """Install what the view needs now: it may be another one since the plan was shown."""
    found = plan(conn, view)
    if found.problems:
        raise CannotDerive(list(found.problems))
    attach.install(conn, found.script)
    return found


def derived(conn: Connection, view: str) -> Derivation:
    """What the view needs, by the catalogue alone: nothing is planned or run."""
    name = sql.Identifier(*view.split(".")).as_string(conn)
    row = conn.execute(queries("view_reads")["view_oid"], {"view": name}).fetchone()
    if row is None or row[0] is None:
        return Derivation(problems=(f"there is no view {view}. Create it first; docs/documents.md shows one.",))
    catalogue = read_catalogue(conn, row[0])
    kind, columns = catalogue.relations[row[0]].kind, catalogue.relations[row[0]].columns.values()
    problem = ""
    if kind == "m":
        problem = f"{view} {MATERIALISED}"
    elif kind != "v":
        problem = f"{view} is no view. Attach it by itself: outbox attach {view} --type TYPE --id ID"
    elif missing := NEEDED_COLUMNS - {each.name for each in columns}:
        problem = f"{view} lacks {', '.join(sorted(missing))}. docs/documents.md says what they are."
    if problem:
        return Derivation(problems=(problem,))
    rows = conn.execute(queries("coverage")["ignored_columns"]).fetchall()
    return derive(catalogue, {oid: frozenset(columns) for oid, columns in rows})


def _is_by_hand(refused: NotDerived, there: list[Installed]) -> bool:
    """Whether people have attached it themselves, with all that the view reads of it."""
    return any(
        each.oid == refused.relation.oid
        and each.attachment.entity_type == refused.entity_type
        and (not each.attachment.columns or refused.columns <= set(each.attachment.columns))
        for each in there
    )


def _told(refused: NotDerived) -> str:
    table = refused.relation.sql
    example = Attachment(table, refused.entity_type, via="select ...")
    return (
        f"{table} as {refused.entity_type}: {refused.reason}.\n"
        f"    Attach it by hand: {example.command(table)}\n"
        f'    or, if it never changes: outbox attach --ignore {table} --reason "..."'
    )


def _planned(conn: Connection, derived: Derived, view: str, there: list[Installed]) -> PlannedAttachment:
    source = tables.find(conn, derived.relation.sql)
    way = derived.way
    wanted = Attachment(source.shown, derived.entity_type, way.id_column, way.via, columns=_columns(source, derived))
    same = [each for each in there if each.oid == source.oid and each.attachment.way == wanted.way]
    state: Literal["new", "renewed", "there"] = "new"
    for each in same:
        wanted = _with_what_is_there(wanted, each.attachment)
        state = "there" if _covers(each, wanted) else "renewed"
    return PlannedAttachment(attach.prepare(conn, derived.relation.sql, view=view, **wanted.how()), way.reason, state)


def _columns(source: SourceTable, derived: Derived) -> tuple[str, ...]:
    """Of updates, only those that change one of these count. None: all do, where all columns are read, where triggers
    do not see one of them, or where a trigger per row would be needed only to pair old and new rows."""
    read = derived.columns | ({derived.way.id_column} if derived.way.id_column is not None else set())
    wanted = tuple(name for name in source.columns if name in read)
    if len(wanted) == len(source.columns) or any(source.columns[name].is_virtual for name in wanted):
        return ()
    free = tables.row_trigger_reason(source, wanted) == tables.row_trigger_reason(source, ())
    return wanted if free else ()


def _with_what_is_there(wanted: Attachment, there: Attachment) -> Attachment:
    """What people have added stays; what it watches becomes more, never less."""
    more = () if not there.columns or not wanted.columns else tuple(dict.fromkeys((*there.columns, *wanted.columns)))
    return replace(wanted, columns=more, per_row=there.per_row or wanted.per_row)


def _covers(each: Installed, wanted: Attachment) -> bool:
    whole = not (each.missing_triggers or each.elsewhere or each.in_transaction) and all(
        trigger.enabled == "A" for trigger in each.triggers
    )
    return whole and set(each.attachment.columns) == set(wanted.columns)


@dataclass(frozen=True, slots=True)
class PostgresViewAttachments:
    direct_url: str
    view: str

    def plan(self) -> ViewPlan:
        with attach.acting(self.direct_url) as connection:
            return plan(connection, self.view)

    def attach(self) -> ViewPlan:
        with attach.acting(self.direct_url) as connection:
            return attach_all(connection, self.view)
