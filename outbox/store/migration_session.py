"""Owns applying one migration on a connection of its own, one program at a time; it does not choose which."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from outbox.errors import DatabaseDown, OutboxError
from outbox.store import adoption, schema_state
from outbox.store.migration_files import Migration
from outbox.store.patience import in_transaction
from outbox.store.pooler import require_own_session

LOCK_KEY = 0x6F7574626F78  # "outbox"
WAIT_FOR_OTHERS_SECONDS = 3600
EVENTS = "0002_events"

Say = Callable[[str], None]


class MigrationRunning(OutboxError):
    """Another `outbox migrate` has been at work on this database for too long. Look for it in
    pg_stat_activity (application_name 'outbox migrate'), and run the command again when it has ended."""

    exit_code = 75


def connect(database_url: str) -> psycopg.Connection:
    """An autocommit session without the role's time limits: an index of millions of rows takes its time.

    Its own: behind a pooler the lock would stay in one session and the missing limits in another."""
    conn = _reach(database_url)
    try:
        require_own_session(conn, partial(_reach, database_url))
    except OutboxError:
        conn.close()
        raise
    conn.execute("set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0")
    return conn


def _reach(database_url: str) -> psycopg.Connection:
    url = database_url.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        conninfo = make_conninfo(url, application_name="outbox migrate", client_encoding="UTF8")
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as down:
        raise DatabaseDown(str(down).splitlines()[0]) from down


@contextmanager
def only_one(conn: psycopg.Connection, say: Say) -> Iterator[None]:
    """Hold the migrations' lock. Polled: a session that waits inside pg_advisory_lock holds a snapshot, and
    the other one's CREATE INDEX CONCURRENTLY would wait for it for ever."""
    tries = Retrying(
        retry=retry_if_result(lambda got: not got),
        wait=wait_fixed(0.2),
        stop=stop_after_delay(WAIT_FOR_OTHERS_SECONDS),
        before_sleep=lambda state: say("waiting for another migrate") if state.attempt_number == 1 else None,
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


def apply(conn: psycopg.Connection, migration: Migration, say: Say) -> None:
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
    elif migration.fills_adopted_rows and schema_state.was_adopted(conn):
        adoption.fill_rows(conn, say)
        in_transaction(conn, partial(adoption.forget_list, conn), partial(record, mode="adopted"))
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
