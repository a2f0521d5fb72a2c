"""Runs a producer's call in the transaction of the caller, over an asynchronous connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox.producers.call import ProducerCall, event_id
from outbox.producers.connection import ConnectionKind, kind_of, refuse_autocommit
from outbox.producers.writing import require_transaction, statement

if TYPE_CHECKING:
    from outbox.producers.connection import AsyncProducerConnection

# Late imports, all of them here: only of what the caller uses already.
# ruff: noqa: PLC0415


async def write(connection: AsyncProducerConnection, call: ProducerCall) -> UUID:
    """The event's id. Raises NoTransaction where the event would be committed on its own, before anything is sent."""
    given: Any = connection
    match kind_of(connection, awaited=True):
        case ConnectionKind.ASYNC_PSYCOPG:
            return await _by_psycopg(given, call)
        case ConnectionKind.ASYNCPG:
            return await _by_asyncpg(given, call)
        case _:
            return await _by_sqlalchemy(given, call)


async def _by_psycopg(connection: Any, call: ProducerCall) -> UUID:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    connection = getattr(connection, "connection", connection)  # a cursor's: its own results stay as they are
    if connection.autocommit and not await _in_transaction(connection):
        raise refuse_autocommit(ConnectionKind.ASYNC_PSYCOPG)
    # Not by `connection.cursor`: a cursor factory of the program may take parameters in another style.
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        # Not prepared: behind a pooler in transaction mode the next session does not know the statement.
        await cursor.execute(call.by_percent.encode(), call.arguments, prepare=False)
        row = await cursor.fetchone()
    assert row is not None
    return event_id(row[0])


async def _in_transaction(connection: Any) -> bool:
    from psycopg.pq import PipelineStatus, TransactionStatus

    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        async with connection.pipeline() as pipeline:  # a BEGIN that is still queued
            await pipeline.sync()
    return bool(connection.info.transaction_status != TransactionStatus.IDLE)


async def _by_asyncpg(connection: Any, call: ProducerCall) -> UUID:
    if not connection.is_in_transaction():
        raise refuse_autocommit(ConnectionKind.ASYNCPG)
    numbered = call.sql(lambda number, _: f"${number}")
    return event_id(await connection.fetchval(numbered, *call.arguments.values()))


async def _by_sqlalchemy(connection: Any, call: ProducerCall) -> UUID:
    if hasattr(connection, "get_bind"):  # a session: its connection belongs to the same transaction
        connection = await connection.connection()
    return event_id(await connection.run_sync(_run, call))


def _run(connection: Any, call: ProducerCall) -> Any:
    """Inside SQLAlchemy's greenlet, where its connection may be asked for the driver's."""
    require_transaction(connection, ConnectionKind.ASYNC_SQLALCHEMY)
    return connection.execute(statement(call), call.arguments).scalar_one()
