"""Runs a producer's call in the transaction of the caller, over a synchronous connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox.producers.call import ProducerCall, event_id
from outbox.producers.connection import ConnectionKind, kind_of, refuse_autocommit

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from outbox.producers.connection import ProducerConnection

# Late imports, all of them here: only of what the caller uses already.
# ruff: noqa: PLC0415


def write(connection: ProducerConnection, call: ProducerCall) -> UUID:
    """The event's id. Raises NoTransaction where the event would be committed on its own, before anything is sent."""
    given: Any = connection
    match kind_of(connection, awaited=False):
        case ConnectionKind.PSYCOPG:
            return _by_psycopg(given, call)
        case ConnectionKind.DJANGO:
            return _by_django(given, call)
        case _:
            return _by_sqlalchemy(given, call)


def _by_psycopg(connection: Any, call: ProducerCall) -> UUID:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    connection = getattr(connection, "connection", connection)  # a cursor's: its own results stay as they are
    if connection.autocommit and not in_transaction(connection):
        raise refuse_autocommit(ConnectionKind.PSYCOPG)
    # Not by `connection.cursor`: a cursor factory of the program may take parameters in another style.
    with Cursor(connection, row_factory=tuple_row) as cursor:
        # Not prepared: behind a pooler in transaction mode the next session does not know the statement.
        row = cursor.execute(call.by_percent.encode(), call.arguments, prepare=False).fetchone()
    assert row is not None
    return event_id(row[0])


def in_transaction(connection: Any) -> bool:
    from psycopg.pq import PipelineStatus, TransactionStatus

    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        with connection.pipeline() as pipeline:  # a BEGIN that is still queued
            pipeline.sync()
    return bool(connection.info.transaction_status != TransactionStatus.IDLE)


def _by_django(connection: Any, call: ProducerCall) -> UUID:
    if not connection.in_atomic_block and connection.get_autocommit():
        raise refuse_autocommit(ConnectionKind.DJANGO)
    with connection.cursor() as cursor:
        cursor.execute(call.by_percent, call.arguments)
        return event_id(cursor.fetchone()[0])


def _by_sqlalchemy(connection: Any, call: ProducerCall) -> UUID:
    if hasattr(connection, "get_bind"):  # a Session: its connection belongs to the same transaction
        connection = connection.connection()
    require_transaction(connection, ConnectionKind.SQLALCHEMY)
    return event_id(connection.execute(statement(call), call.arguments).scalar_one())


def require_transaction(connection: Any, kind: ConnectionKind) -> None:
    """SQLAlchemy begins one with its first statement, unless its driver is in autocommit."""
    if getattr(connection.connection.dbapi_connection, "autocommit", False) is True:
        raise refuse_autocommit(kind)


def statement(call: ProducerCall) -> TextClause:
    """With the types of its parameters: of a plain integer SQLAlchemy would make one of 32 bits for asyncpg."""
    from sqlalchemy import BigInteger, Text, bindparam, text

    types = {name: BigInteger() if name == "version" else Text() for name in call.arguments}
    return text(call.sql(lambda _, name: f":{name}")).bindparams(
        *(bindparam(name, type_=kind) for name, kind in types.items())
    )
