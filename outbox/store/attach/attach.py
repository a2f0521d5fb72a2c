"""Attaches and detaches users' tables: installs and drops triggers, or says by which SQL. `PostgresAttachments` does so
over a connection of its own, past any pooler."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import Connection, sql

from outbox.errors import Conflict, NotFound
from outbox.policy.entity_type import KeptBy
from outbox.ports import Attachment, AttachResult
from outbox.store.attach import attachments, checks, installed, tables, triggers
from outbox.store.attach.attachments import AttachedRow
from outbox.store.attach.checks import Checked
from outbox.store.attach.installed import Installed
from outbox.store.attach.tables import CannotAttach, SourceTable
from outbox.store.attach.triggers import NO_TRUNCATE, Session, drop_function, drop_trigger
from outbox.store.entity_types import declared
from outbox.store.pool import connect, translated
from outbox.store.queries import queries
from outbox.store.schema.patience import in_transaction

_WORDS = {"entity_type": "as", "id_column": "by", "via": "via"}


class KeptByPayloads(Conflict):
    """Events with payloads keep this entity type, and an attached table's documents come from the view. Let its
    producers send no more payloads (where triggers of 0.1.0 do: `outbox detach TABLE`), run
    `outbox types set TYPE view`, then attach; nothing was changed."""


class NotAttached(NotFound):
    """The table is not attached to the outbox in this way. `outbox attach --help` shows how to do so."""


def attach(
    conn: Session, table: str, *, view: str = "search_documents", rows: bool = False, run: bool = True, **how: Any
) -> AttachResult:
    """Install the triggers, or renew them. From the commit on, every change of a row writes its events. `how`: as
    `Attachment` names it; `rows`: only if the view has the table's rows as documents; not `run`: only give the SQL."""
    made = prepare(conn, table, view=view, rows=rows, **how)
    if run:
        install(conn, made.sql)
    return made


def install(conn: Session, script: str) -> None:
    """All of it, or nothing. What a migration tool gets as text is what is run here."""
    in_transaction(conn, lambda: conn.execute(sql.SQL(script), prepare=False))


def prepare(conn: Session, table: str, *, view: str, rows: bool = False, **how: Any) -> AttachResult:
    source = tables.find(conn, table)
    wanted = Attachment(source.shown, **how)
    wanted = replace(wanted, via=wanted.via.strip() if wanted.via is not None else None)
    there = installed.installed(conn)
    checked = checks.check(conn, source, wanted, view, rows=rows)
    was = declared(conn, wanted.entity_type)
    if was is not None and was.kept_by is KeptBy.PAYLOAD:
        raise KeptByPayloads(wanted.entity_type)
    wanted = replace(wanted, per_row=wanted.per_row or tables.row_trigger_reason(source, wanted.columns) != "")
    same = [each for each in there if each.oid == source.oid and each.attachment.way == wanted.way]
    statements = _statements(conn, source, _row(conn, source, wanted, checked), same)
    return AttachResult(wanted, checked.notes, tables.about_rows(conn, source), _script(conn, statements))


def _row(conn: Session, source: SourceTable, wanted: Attachment, checked: Checked) -> AttachedRow:
    path = tuple(name for (name,) in conn.execute(queries("producers")["search_path"], {}).fetchall())
    function = triggers.function_name(source, wanted)
    partitions = len(source.partitions) if source.kind == "p" else 0
    return AttachedRow(wanted, checked.used, checked.watched, path, function, partitions)


def _statements(conn: Session, source: SourceTable, row: AttachedRow, same: list[Installed]) -> list[sql.Composed]:
    """For one transaction: no change of the table is without its event meanwhile."""
    kept = set(triggers.trigger_names(row.wanted).values())
    drops = [drop for each in same for drop in _drops(source, each, kept, row)]
    put = [*triggers.statements(conn, source, row), *drops, attachments.put(source, row)]
    return [*put, triggers.declare(conn, source, row.wanted)]


def _script(conn: Session, statements: Iterable[sql.Composed]) -> str:
    return "".join(f"{statement.as_string(conn).strip().removesuffix(';')};\n\n" for statement in statements)


def _drops(
    source: SourceTable, old: Installed, kept: Collection[str] = (), row: AttachedRow | None = None
) -> list[sql.Composed]:
    """What is left of it beside the triggers and the function that `row` keeps."""
    drops = [drop_trigger(trigger.name, source.name) for trigger in old.triggers if trigger.name not in kept]
    if row is None or (old.function_schema, old.function) != (source.outbox_schema, row.function):
        drops.append(drop_function(sql.Identifier(old.function_schema, old.function)))
    if old.number is not None and (row is None or old.number != row.number):
        drops.append(attachments.close(source, old.number))
    return drops


def detach(conn: Session, table: str, **way: str | None) -> list[Attachment]:
    """Remove the triggers and their functions, of all ways or of one; events that were written stay."""
    script, gone = _removal(conn, table, way)
    install(conn, script)
    return gone


def detach_sql(conn: Session, table: str, **way: str | None) -> str:
    return _removal(conn, table, way)[0]


def _removal(conn: Session, table: str, way: Mapping[str, str | None]) -> tuple[str, list[Attachment]]:
    """`way`: as `Attachment` names it; what is None there does not matter."""
    source = tables.find(conn, table)
    named = {name: value.strip() if name == "via" else value for name, value in way.items() if value is not None}
    there = [each for each in installed.installed(conn) if each.oid == source.oid]
    chosen = [each for each in there if named.items() <= each.attachment.how().items()]
    # A partition that was detached from an attached table keeps the refusal of TRUNCATE, and nothing else of ours.
    once_a_partition = not source.is_partition and any(part.guarded for part in source.partitions)
    if not chosen and (there or not once_a_partition):
        raise NotAttached(" ".join([source.shown, *(f"{_WORDS[name]} {value}" for name, value in named.items())]))
    drops = [drop for each in chosen for drop in _drops(source, each)]
    if len(chosen) == len(there):
        drops += [drop_trigger(NO_TRUNCATE, part.name) for part in source.partitions]
    return _script(conn, drops), [each.attachment for each in chosen]


@dataclass(frozen=True, slots=True)
class PostgresAttachments:
    direct_url: str
    view: str

    def attach(self, wanted: Attachment, *, rows: bool = False, run: bool = True) -> AttachResult:
        with acting(self.direct_url) as connection:
            return attach(connection, wanted.table, **wanted.how(), view=self.view, rows=rows, run=run)

    def detach(self, table: str, *, entity_type: str | None = None) -> list[Attachment]:
        with acting(self.direct_url) as connection:
            return detach(connection, table, entity_type=entity_type)

    def detach_sql(self, table: str, *, entity_type: str | None = None) -> str:
        with acting(self.direct_url) as connection:
            return detach_sql(connection, table, entity_type=entity_type)


@contextmanager
def acting(direct_url: str) -> Iterator[Connection[Any]]:
    with connect(direct_url, application="outbox attach") as connection, translated():
        try:
            yield connection
        except psycopg.errors.InsufficientPrivilege as error:  # its own words name the table
            said = error.diag.message_primary or "permission denied"
            remedy = "Run this as the table's owner, with the right to write to the outbox too."
            raise CannotAttach([f"{said}. {remedy}"]) from error
