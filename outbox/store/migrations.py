"""Owns bringing the schema to the number this program needs; it does not know what the tables mean."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import make_conninfo
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from outbox.errors import OutboxError
from outbox.store import adoption, migration_files
from outbox.store.migration_files import Migration
from outbox.store.patience import run_in_transaction

LOCK_KEY = 0x6F7574626F78  # "outbox"
_WAIT_FOR_OTHERS_SECONDS = 3600


class MigrationChanged(OutboxError):
    """A migration that this database already has reads differently now. Install the program that wrote it, or undo
    that migration by hand (its header says how) and run `outbox migrate` again."""

    exit_code = 78


def migrate(
    database_url: str,
    *,
    by_type: bool = False,
    by_entity: bool = False,
    notify: bool = False,
    drop_slow_indexes: bool = False,
) -> list[str]:
    """Apply what is missing and return the names applied. Safe to run twice at once and to kill at any point."""
    wanted = {"by_type": by_type, "by_entity": by_entity, "notify": notify}
    with _connect(database_url) as conn, _only_one(conn):
        conn.execute(migration_files.numbered()[0].text)  # type: ignore[call-overload]
        names = [name for name in map(lambda m: _apply(conn, m), _missing(conn, wanted)) if name]
        if drop_slow_indexes:
            names += [f"dropped index {index}" for index in adoption.drop_slow_indexes(conn)]
        return names


def _missing(conn: psycopg.Connection, wanted: dict[str, bool]) -> list[Migration]:
    applied = dict(conn.execute("select name, checksum from search_outbox_migrations").fetchall())
    everything = [*migration_files.numbered(), *(migration_files.part(p) for p in wanted if wanted[p])]
    changed = [m.name for m in everything if applied.get(m.name, m.checksum) != m.checksum]
    if changed:
        raise MigrationChanged(", ".join(changed))
    return [migration for migration in everything if migration.name not in applied]


def _apply(conn: psycopg.Connection, migration: Migration) -> str:
    started = time.monotonic()
    if migration.concurrent:
        for statement in migration.statements:
            _build_index(conn, statement)
        _record(conn, migration, started)
    else:
        run_in_transaction(conn, migration.text, lambda: _record(conn, migration, started))
    return migration.name


def _build_index(conn: psycopg.Connection, statement: str) -> None:
    conn.execute(statement)  # type: ignore[call-overload]


def _record(conn: psycopg.Connection, migration: Migration, started: float, mode: str = "created") -> None:
    conn.execute(
        "insert into search_outbox_migrations (name, number, checksum, mode, duration_ms) values (%s, %s, %s, %s, %s)",
        (
            migration.name,
            migration.number,
            migration.checksum,
            mode,
            int((time.monotonic() - started) * 1000),
        ),
    )


def _connect(database_url: str) -> psycopg.Connection:
    url = database_url.replace("postgresql+psycopg://", "postgresql://", 1)
    return psycopg.connect(make_conninfo(url, application_name="outbox migrate"), autocommit=True)


@contextmanager
def _only_one(conn: psycopg.Connection) -> Iterator[None]:
    """One migration at a time. Polled: a session that waits inside pg_advisory_lock holds a snapshot, and the other
    one's CREATE INDEX CONCURRENTLY would wait for it for ever."""
    tries = Retrying(
        retry=retry_if_result(lambda got: not got),
        wait=wait_fixed(0.2),
        stop=stop_after_delay(_WAIT_FOR_OTHERS_SECONDS),
    )
    tries(lambda: conn.execute("select pg_try_advisory_lock(%s)", (LOCK_KEY,)).fetchone() == (True,))
    try:
        yield
    finally:
        conn.execute("select pg_advisory_unlock(%s)", (LOCK_KEY,))
