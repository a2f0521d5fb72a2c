"""Attaches and detaches users' tables over a connection of its own, past any pooler: installs and drops triggers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection, sql

from outbox.errors import Conflict, NotFound
from outbox.policy.audit import Actor, Source
from outbox.policy.entity_type import BY_VIEW, KeptBy
from outbox.ports import Attachment, AttachResult
from outbox.store.attach import checks, installed, tables, triggers
from outbox.store.attach.checks import Checked
from outbox.store.attach.installed import Installed
from outbox.store.attach.tables import CannotAttach, SourceTable
from outbox.store.attach.triggers import NO_TRUNCATE, drop_function, drop_trigger
from outbox.store.entity_types import change, declare, declared
from outbox.store.pool import connect, translated
from outbox.store.queries import queries
from outbox.store.schema.patience import in_transaction


class KeptByPayloads(Conflict):
    """Events with payloads keep this entity type, and an attached table's documents come from the view. Let its
    producers send no more payloads, run `outbox types set TYPE view`, then attach; nothing was changed."""


class NotAttached(NotFound):
    """The table is not attached to the outbox in this way. `outbox attach --help` shows how to do so."""


def attach(
    conn: psycopg.Connection[Any], table: str, *, view: str = "search_documents", rows: bool = False, **how: Any
) -> AttachResult:
    """Install the triggers, or renew them. From the commit on, every change of a row writes its events. `how`: as
    `Attachment` names it; `rows`: only if the view has the table's rows as documents."""
    source = tables.find(conn, table)
    wanted = Attachment(source.shown, **how)
    wanted = replace(wanted, via=wanted.via.strip() if wanted.via is not None else None)
    there = installed.installed(conn)
    checked = checks.check(conn, source, wanted, view, there, rows=rows)
    wanted = replace(wanted, per_row=wanted.per_row or tables.row_trigger_reason(source, wanted.columns) != "")
    install(conn, source, wanted, checked, there)
    return AttachResult(wanted, checked.notes, tables.count_rows(conn, source))


def install(
    conn: psycopg.Connection[Any], source: SourceTable, wanted: Attachment, checked: Checked, there: list[Installed]
) -> None:
    """In one transaction: no change of the table is without its event meanwhile."""
    same = [each for each in there if each.oid == source.oid and each.attachment.replaced_by(wanted)]
    path = [name for (name,) in conn.execute(queries("producers")["search_path"], {}).fetchall()]
    function = triggers.function_name(source, wanted)
    put = triggers.statements(conn, source, wanted, function, path, checked.watched)
    kept = set(triggers.trigger_names(wanted).values())
    drops = [drop for each in same for drop in _drops(source, each, kept, function)]
    had_payloads = any(each.attachment.older for each in same)

    def step() -> None:
        for statement in (*put, *drops):
            conn.execute(statement)
        _declare(conn, wanted.entity_type, had_payloads=had_payloads)

    in_transaction(conn, step)


def _declare(conn: psycopg.Connection[Any], entity_type: str, *, had_payloads: bool) -> None:
    """The view keeps the type from now on. Where the triggers that go have sent payloads, its documents are still to be
    brought over."""
    was = declared(conn, entity_type)
    if was is None:
        declare(conn, {entity_type: BY_VIEW}, "outbox attach")
    elif was.kept_by is KeptBy.PAYLOAD:
        if not had_payloads:
            raise KeptByPayloads(entity_type)
        actor = Actor("outbox attach", Source.CLI)
        change(conn, entity_type, BY_VIEW._replace(moving=True), actor, "its triggers write refreshes now", was)


def _drops(
    source: SourceTable, old: Installed, kept: Collection[str] = (), function: sql.Identifier | None = None
) -> list[sql.Composed]:
    """What is left of it beside the triggers and the function that are kept."""
    drops = [drop_trigger(trigger.name, source.name) for trigger in old.triggers if trigger.name not in kept]
    return drops if old.function == function else [*drops, drop_function(old.function)]


def detach(conn: psycopg.Connection[Any], table: str, *, entity_type: str | None = None) -> list[Attachment]:
    """Remove the triggers and their functions, of all types or of one; events that were written stay."""
    source = tables.find(conn, table)
    there = [each for each in installed.installed(conn) if each.oid == source.oid]
    chosen = [each for each in there if entity_type in (None, each.attachment.entity_type)]
    # A partition that was detached from an attached table keeps the refusal of TRUNCATE, and nothing else of ours.
    once_a_partition = not source.is_partition and any(part.guarded for part in source.partitions)
    if not chosen and (there or not once_a_partition):
        raise NotAttached(f"{source.shown}{f' as {entity_type}' if entity_type is not None else ''}")
    drops = [drop for each in chosen for drop in _drops(source, each)]
    if len(chosen) == len(there):
        drops += [drop_trigger(NO_TRUNCATE, part.name) for part in source.partitions]
    in_transaction(conn, lambda: [conn.execute(drop) for drop in drops])
    return [each.attachment for each in chosen]


class PostgresAttachments:
    def __init__(self, direct_url: str, view: str) -> None:
        self._url = direct_url
        self._view = view

    def attach(self, wanted: Attachment, *, rows: bool = False) -> AttachResult:
        with self._acting() as connection:
            return attach(connection, wanted.table, **wanted.how(), view=self._view, rows=rows)

    def detach(self, table: str, *, entity_type: str | None = None) -> list[Attachment]:
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
