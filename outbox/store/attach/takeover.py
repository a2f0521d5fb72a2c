"""Takes over what release 0.1.0 attached: its triggers become rows of ours, and those with a query write fan-outs."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg import sql

from outbox.ports import Attachment
from outbox.store.attach import attach, attachments, installed, tables
from outbox.store.attach import via as vias
from outbox.store.attach.attachments import AttachedRow
from outbox.store.attach.installed import Installed
from outbox.store.attach.tables import CannotAttach, SourceTable
from outbox.store.pool import fetch_rows
from outbox.store.queries import queries
from outbox.store.schema.patience import TableBusy

Say = Callable[[str], None]


def take_over(conn: psycopg.Connection[Any], say: Say) -> None:
    """Only where the function is the outbox's owner's and says the same as the trigger's arguments, which others write.
    The triggers stay as they are; what cannot be taken over is named."""
    if conn.execute("select to_regclass('search_outbox_attachments') is null").fetchone() == (True,):
        return  # an older schema
    rows = fetch_rows(conn, queries("producers")["strays"], {})
    bodies = {row["function"]: row["body"] for row in rows if row["ours"]}
    for each in installed.strays(conn):
        if each.attachment.older:
            say(f"{each.attachment.table} was attached with --payload by release 0.1.0: see docs/upgrading.md")
            continue
        source = tables.find(conn, each.quoted_table)
        row = _verified(conn, source, each, bodies.get(each.function, ""))
        if row is None:
            say(f"{each.attachment.table} has triggers that none of our functions explains: attach it anew")
            continue
        conn.execute(attachments.put(source, row))
        say(f"{each.attachment.table} is attached as {each.attachment.shown}")


def rewrite(conn: psycopg.Connection[Any], view: str) -> Iterator[str]:
    """Lets queries that run in the writer's transaction run after its commit. Answers the commands for those that this
    role may not change, or whose table is busy."""
    for each in installed.installed(conn):
        if each.in_transaction and each.number is not None:
            try:
                attach.attach(conn, each.quoted_table, view=view, **each.attachment.how())
            except (CannotAttach, TableBusy, psycopg.errors.InsufficientPrivilege):
                yield each.command


def _verified(conn: psycopg.Connection[Any], source: SourceTable, each: Installed, body: str) -> AttachedRow | None:
    wanted = each.attachment
    if not all(part in body for part in _parts(conn, wanted)):
        return None
    used: tuple[str, ...] = ()
    if wanted.via is not None:
        checked = vias.check(conn, source, wanted.via)
        if checked.problems:
            return None
        used = checked.used
    elif wanted.id_column not in source.columns:
        return None
    named = (*wanted.columns, wanted.id_column, *used) if wanted.columns else ()
    watched = tuple(dict.fromkeys(name for name in named if name is not None))
    return AttachedRow(wanted, used, watched, each.path, each.function, each.partitions)


def _parts(conn: psycopg.Connection[Any], wanted: Attachment) -> Iterator[str]:
    """What the function must hold of what the arguments say. A query stood in a text that was executed."""
    kind = sql.Literal(wanted.entity_type).as_string(conn)
    if wanted.via is None:
        yield from (kind, sql.Identifier("changed", wanted.id_column or "").as_string(conn))
        return
    for part in (kind, f"cross join lateral (\n{wanted.via}\n) as via (id)"):
        yield sql.Literal(part).as_string(conn).strip().removeprefix("E")[1:-1]
