"""Owns what `outbox migrate` does: choose what is missing and apply or show it; it knows no table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from outbox.errors import SchemaMismatch
from outbox.store import adoption, attached, migration_files, migration_session, schema_state, slow_indexes
from outbox.store.migration_files import Migration
from outbox.store.schema_state import (
    SchemaState,
    SchemaStatus,
    check_schema,
    has_by_entity,
    has_by_type,
    has_notify,
)

__all__ = [
    "PlannedStep",
    "SchemaState",
    "SchemaStatus",
    "back",
    "check_schema",
    "has_by_entity",
    "has_by_type",
    "has_notify",
    "migrate",
    "plan",
    "sql",
    "status",
]

Say = Callable[[str], None]


class PlannedStep(NamedTuple):
    """One thing that `migrate` would do."""

    name: str
    why: str
    adopts: bool


def migrate(
    database_url: str,
    *,
    by_type: bool = False,
    by_entity: bool = False,
    notify: bool = False,
    drop_slow_indexes: bool = False,
    say: Say = lambda _: None,
) -> list[str]:
    """Apply what is missing and return the names applied. Safe to run twice at once and to kill anywhere."""
    parts = _chosen(by_type=by_type, by_entity=by_entity, notify=notify)
    with migration_session.connect(database_url) as conn, migration_session.only_one(conn, say):
        _refuse_strange(check_schema(conn))
        pending = schema_state.pending(conn, parts)
        conn.add_notice_handler(partial(migration_session.pass_on, say))
        for migration in pending:
            say(f"applying {migration.name}")
            migration_session.apply(conn, migration, say)
        dropped = slow_indexes.drop(conn) if drop_slow_indexes else []
        for command in attached.renewals(conn):
            say(f"attached in an older form, which goes on working; to write refreshes instead run: {command}")
    return [*(migration.name for migration in pending), *(f"dropped index {name}" for name in dropped)]


def status(database_url: str) -> SchemaStatus:
    """What is applied, what is not, the optional parts, and indexes that slow claims down."""
    with migration_session.connect(database_url) as conn:
        return schema_state.read_status(conn)


def plan(
    database_url: str, *, by_type: bool = False, by_entity: bool = False, notify: bool = False
) -> list[PlannedStep]:
    """What `migrate` would do, each step with its reason. Raises `CannotAdopt` where migrate would."""
    parts = _chosen(by_type=by_type, by_entity=by_entity, notify=notify)
    with migration_session.connect(database_url) as conn:
        _refuse_strange(check_schema(conn))
        pending = schema_state.pending(conn, parts)
        adopts = adoption.is_needed(conn) and any(m.name == migration_session.EVENTS for m in pending)
        if adopts:
            adoption.refuse_unfit(conn)
        return [PlannedStep(m.name, m.why, adopts and m.name == migration_session.EVENTS) for m in pending]


def sql(*, by_type: bool = False, by_entity: bool = False, notify: bool = False) -> str:
    """The whole schema as a script for psql, for a database that has no events table yet."""
    parts = _chosen(by_type=by_type, by_entity=by_entity, notify=notify)
    wanted = [*migration_files.numbered(), *map(migration_files.part, parts)]
    head = "-- For a database without search_outbox_events. Run it with: psql -v ON_ERROR_STOP=1 -f FILE\n"
    return "\n".join([head, *map(_as_script, wanted)])


def back(to: int) -> str:
    """A script for psql that takes back, newest first, what is newer than `to`: then the older program fits again."""
    newer = [migration for migration in migration_files.numbered() if (migration.number or 0) > to]
    head = "-- Stop the newer daemons first. Run it with: psql -v ON_ERROR_STOP=1 -f FILE\n"
    return "\n".join([head, *map(_as_undo, reversed(newer))])


def _as_undo(migration: Migration) -> str:
    head = f"-- Takes back {migration.name}\n"
    return f"{head}{migration.undo()}\n" if migration.concurrent else f"{head}begin;\n{migration.undo()}\ncommit;\n"


def _as_script(migration: Migration) -> str:
    number = "null" if migration.number is None else migration.number
    values = f"('{migration.name}', {number}, '{migration.checksum}')"
    record = f"insert into search_outbox_migrations (name, number, checksum)\n    values {values};\n"  # noqa: S608
    if migration.concurrent:
        return f"{migration.text}\n{record}"
    return f"begin;\n{migration.text}\n{record}commit;\n"


def _chosen(**parts: bool) -> tuple[str, ...]:
    return tuple(name for name in migration_files.PARTS if parts[name])


def _refuse_strange(schema: SchemaState) -> None:
    """A schema from another release is left alone: applying to it could only make it worse."""
    if schema.state in ("too_new", "changed"):
        raise SchemaMismatch(str(schema))
