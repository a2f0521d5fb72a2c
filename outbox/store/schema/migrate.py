"""Owns what `outbox migrate` does: choose what is missing, apply it one program at a time, show it. Knows no table."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import psycopg
from psycopg import sql
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from outbox.errors import OutboxError, SchemaMismatch
from outbox.policy.entity_type import BY_VIEW
from outbox.policy.schema import SchemaState, SchemaStatus
from outbox.store.attach import takeover
from outbox.store.pool import connect, translated
from outbox.store.pooler import require_own_session
from outbox.store.schema import adoption, declaring, files, state
from outbox.store.schema.files import Migration
from outbox.store.schema.patience import in_transaction
from outbox.store.schema.state import check_schema

Say = Callable[[str], None]


class PlannedStep(NamedTuple):
    name: str
    why: str
    adopts: bool


def migrate(
    database_url: str,
    *,
    by_type: bool = False,
    by_entity: bool = False,
    notify: bool = False,
    log: bool = False,
    drop_slow_indexes: bool = False,
    view: str = "search_documents",
    most_bytes: int | None = None,
    say: Say = lambda _: None,
) -> list[str]:
    """Apply what is missing and return the names applied. Safe to run twice at once and to kill anywhere. `most_bytes`:
    of a payload; None leaves the limit as it is."""
    parts = _chosen(by_type=by_type, by_entity=by_entity, notify=notify, log=log)
    with migration_connection(database_url) as conn, only_one(conn, say):
        _refuse_strange(check_schema(conn))
        pending = state.pending(conn, parts)
        conn.add_notice_handler(partial(pass_on, say))
        for migration in pending:
            say(f"applying {migration.name}")
            apply_one(conn, migration, say)
        dropped = state.drop_slow(conn) if drop_slow_indexes else []
        if any(migration.name == declaring.MIGRATION for migration in pending) or not declaring.is_finished(conn):
            _tell_types(conn, view, say)
        takeover.take_over(conn, say)
        if most_bytes is not None:
            _limit(conn, most_bytes, say)
    return [*(migration.name for migration in pending), *(f"dropped index {name}" for name in dropped)]


_LIMIT: Final = """create or replace function search_outbox_max_bytes() returns int
language sql immutable parallel safe as {}"""


def _limit(conn: psycopg.Connection, most_bytes: int, say: Say) -> None:
    if conn.execute("select search_outbox_max_bytes()").fetchone() != (most_bytes,):
        conn.execute(sql.SQL(_LIMIT).format(sql.Literal(f"select {most_bytes}")))
        say(f"outbox_enqueue takes payloads of up to {most_bytes:,} bytes")


def _tell_types(conn: psycopg.Connection, view: str, say: Say) -> None:
    """A view that takes too long, or may not be read, is left: the first event of each type declares it."""
    try:
        found = declaring.declare_found(conn, view)
    except (psycopg.errors.QueryCanceled, psycopg.errors.InsufficientPrivilege) as error:
        say(f"the types of {view} could not be listed ({type(error).__name__}): their first events declare them")
        return
    for kind, about in found.clear.items():
        say(f"{kind} is kept by {'the view' if about == BY_VIEW else 'payloads'}, as far as what is there tells")
    for kind in found.mixed:
        say(f"{kind} has rows in the view and events with payloads: say `outbox types set {kind} view`, or `payload`")
    if not declaring.is_finished(conn):
        say("when no projector of an older program runs any more: `outbox migrate --finish`")


def finish(database_url: str, view: str, say: Say = lambda _: None) -> list[str]:
    """The second step of the upgrade; answers which types to backfill."""
    with migration_connection(database_url) as conn, only_one(conn, say):
        _refuse_strange(check_schema(conn))
        types = declaring.finish(conn, view)
        for command in takeover.rewrite(conn, view):
            say(f"this role could not renew a query's triggers; as the table's owner run: {command}")
        return types


# `outbox_enqueue` as it was, which is kept for the way back.
_LOG_IS_ON: Final = "select to_regproc('search_outbox_enqueue_table') is not null"


def turn_log_off(database_url: str, say: Say = lambda _: None) -> list[str]:
    """Producers write to search_outbox_events again; the log and its publication stay for the connector."""
    others: list[str] = []

    def switch() -> None:
        others[:] = [name for (name,) in conn.execute("select search_outbox_log_off()").fetchall()]

    with migration_connection(database_url) as conn, only_one(conn, say):
        if conn.execute(_LOG_IS_ON).fetchone() != (True,):
            return []
        in_transaction(conn, switch)
    for name in others:
        say(f"{name} belongs to another role and still writes to search_outbox_log: attach its table again")
    return ["log off"]


def status(database_url: str) -> SchemaStatus:
    """What is applied, what is not, the optional parts, and indexes that slow claims down."""
    with migration_connection(database_url) as conn:
        return state.read_status(conn)


def plan(
    database_url: str, *, by_type: bool = False, by_entity: bool = False, notify: bool = False, log: bool = False
) -> list[PlannedStep]:
    """What `migrate` would do, each step with its reason. Raises `CannotAdopt` where migrate would."""
    parts = _chosen(by_type=by_type, by_entity=by_entity, notify=notify, log=log)
    with migration_connection(database_url) as conn:
        _refuse_strange(check_schema(conn))
        pending = state.pending(conn, parts)
        adopts = adoption.is_needed(conn) and any(m.name == EVENTS for m in pending)
        if adopts:
            adoption.refuse_unfit(conn)
        return [PlannedStep(m.name, m.why, adopts and m.name == EVENTS) for m in pending]


def script(*, by_type: bool = False, by_entity: bool = False, notify: bool = False, log: bool = False) -> str:
    """The whole schema as a script for psql, for a database that has no events table yet."""
    parts = _chosen(by_type=by_type, by_entity=by_entity, notify=notify, log=log)
    wanted = [*files.numbered(), *map(files.part, parts)]
    head = "-- For a database without search_outbox_events. Run it with: psql -v ON_ERROR_STOP=1 -f FILE\n"
    return "\n".join([head, *map(_as_script, wanted)])


def back(to: int) -> str:
    """A script for psql that takes back, newest first, what is newer than `to`: then the older program fits again."""
    newer = [migration for migration in files.numbered() if (migration.number or 0) > to]
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
    return tuple(name for name in files.PARTS if parts[name])


def _refuse_strange(schema: SchemaState) -> None:
    """A schema from another release is left alone: applying to it could only make it worse."""
    if schema.state in ("too_new", "changed"):
        raise SchemaMismatch(str(schema))


LOCK_KEY = 0x6F7574626F78  # "outbox"
WAIT_FOR_OTHERS_SECONDS = 3600
EVENTS = "0002_events"


class MigrationRunning(OutboxError):
    """Another `outbox migrate` has been at work on this database for too long. Find it in
    pg_stat_activity (application_name 'outbox migrate'), and run the command again when it has ended."""

    exit_code = 75


@contextmanager
def migration_connection(database_url: str) -> Iterator[psycopg.Connection]:
    """An autocommit session without the role's time limits: an index of millions of rows takes its time.

    Its own: behind a pooler the lock would stay in one session and the missing limits in another."""
    reach = partial(connect, database_url, application="outbox migrate")
    with reach() as conn, translated():
        require_own_session(conn, reach)
        conn.execute("set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0")
        yield conn


@contextmanager
def only_one(conn: psycopg.Connection, say: Say) -> Iterator[None]:
    """Hold the migrations' lock. Polled: a session that waits inside pg_advisory_lock holds a snapshot, and
    the other one's CREATE INDEX CONCURRENTLY would wait for it for ever."""
    tries = Retrying(
        retry=retry_if_result(lambda got: not got),
        wait=wait_fixed(0.2),
        stop=stop_after_delay(WAIT_FOR_OTHERS_SECONDS),
        before_sleep=lambda tried: say("waiting for another migrate") if tried.attempt_number == 1 else None,
    )
    try:
        tries(lambda: conn.execute("select pg_try_advisory_lock(%s)", (LOCK_KEY,)).fetchone() == (True,))
    except RetryError as late:
        raise MigrationRunning from late
    try:
        yield
    finally:
        if not conn.broken:
            conn.execute("select pg_advisory_unlock(%s)", (LOCK_KEY,))


def apply_one(conn: psycopg.Connection, migration: Migration, say: Say) -> None:
    """Apply one migration and record it: in one transaction, or step by step where that cannot be."""
    record = partial(_record, conn, migration, time.monotonic())
    if migration.concurrent:
        _drop_broken(conn, migration.indexes)
        for statement in migration.statements:
            conn.execute(statement.encode())
        record()
    elif migration.name == EVENTS and adoption.is_needed(conn):
        adoption.adopt_columns(conn, say)
        record(mode="adopted")
    elif migration.run == "adopted rows" and any(row.mode == "adopted" for row in state.applied(conn)):
        adoption.fill_rows(conn, say)
        forget = partial(conn.execute, "drop table if exists search_outbox_adoption")
        in_transaction(conn, forget, partial(record, mode="adopted"))
    else:
        in_transaction(conn, partial(conn.execute, migration.text.encode()), record)


def pass_on(say: Say, notice: psycopg.errors.Diagnostic) -> None:
    """A migration's own warning, such as roles that it may not make; PostgreSQL's remarks are left out."""
    if notice.severity_nonlocalized == "WARNING":
        say("\n".join(filter(None, (notice.message_primary, notice.message_hint))))


def _drop_broken(conn: psycopg.Connection, indexes: list[str]) -> None:
    """A build that was killed leaves an invalid index of its name, which IF NOT EXISTS would take for ours."""
    broken = conn.execute(
        "select relname from pg_index join pg_class as i on i.oid = indexrelid where not indisvalid"
        " and indexrelid in (select to_regclass(name) from unnest(%s::text[]) as name)",
        (indexes,),
    ).fetchall()
    for (name,) in broken:
        conn.execute(sql.SQL("drop index concurrently {}").format(sql.Identifier(name)))


def _record(conn: psycopg.Connection, migration: Migration, started: float, mode: str = "created") -> None:
    duration_ms = int((time.monotonic() - started) * 1000)
    conn.execute(
        "insert into search_outbox_migrations (name, number, checksum, mode, duration_ms) values (%s, %s, %s, %s, %s)"
        " on conflict (name) do update set applied_at = clock_timestamp(), applied_by = current_user",
        (migration.name, migration.number, migration.checksum, mode, duration_ms),
    )
