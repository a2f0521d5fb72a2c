"""Owns telling whether a pooler stands before PostgreSQL and what it keeps for us; it opens no connection by itself.

A pooler in transaction mode gives each transaction any session. What a session keeps (LISTEN, its own settings, locks)
is then someone else's, and a statement prepared as `_pg3_0` may be another client's: it would run with our values.
"""

from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg import Connection, sql

from outbox.errors import PooledAddress

# An idle pooler hands out the session that was given back last: the first round shows it. A busy one takes some more.
ROUNDS: Final = 20

Connecting = Callable[[], Connection[Any]]


def session_pid(connection: Connection[Any]) -> int:
    row = connection.execute("select pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])


def is_between(connection: Connection[Any]) -> bool:
    """A pooler makes up the process number of its greeting; the server's own is another."""
    return session_pid(connection) != connection.info.backend_pid


def shares_sessions(connection: Connection[Any], another: Connecting) -> bool:
    """Seen with one's own eyes: two connections in one session, or one that moved. In session mode neither happens."""
    if not is_between(connection):
        return False
    with another() as other:
        first = session_pid(connection)
        for _ in range(ROUNDS):
            if session_pid(other) == first or session_pid(connection) != first:
                return True
    return False


def require_own_session(connection: Connection[Any], another: Connecting) -> None:
    if shares_sessions(connection, another):
        raise PooledAddress


def keeps_prepared(connection: Connection[Any]) -> bool:
    """Whether a prepared statement is ours alone: there is no pooler, or one that gives statements its own names."""
    if not is_between(connection):
        return True
    try:
        with connection.transaction():
            return not _passed_on(connection)
    except (psycopg.errors.DuplicatePreparedStatement, psycopg.errors.InvalidSqlStatementName):
        return False


def _passed_on(connection: Connection[Any]) -> bool:
    """In one transaction, so that the session in which it is looked for is the one in which it was prepared."""
    connection.execute("select 'outbox looks for a pooler'", prepare=True)
    # psycopg's own names; pgbouncer from 1.21 on shows PGBOUNCER_n here.
    names = connection.execute(
        "select name from pg_prepared_statements where name like '\\_pg3\\_%%'"
        " and statement = 'select ''outbox looks for a pooler'''",
        prepare=False,
    ).fetchall()
    for (name,) in names:
        connection.execute(sql.SQL("deallocate {}").format(sql.Identifier(name)), prepare=False)
    return bool(names)
