"""Tells whose connection a producer handed in, and refuses those by which an event would be committed on its own.

By the type alone: nothing is imported for a library that the program does not use.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from outbox.errors import NoTransaction, WrongConnection

if TYPE_CHECKING:
    import psycopg
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.utils.connection import ConnectionProxy
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    class AsyncpgConnection(Protocol):
        """asyncpg's, which has no types of its own: of a pool or not."""

        def is_in_transaction(self) -> bool: ...
        async def fetchval(self, query: str, *args: Any) -> Any: ...

    ProducerConnection: TypeAlias = (
        psycopg.Connection[Any]
        | psycopg.Cursor[Any]
        | Connection
        | Session
        | scoped_session[Any]
        | BaseDatabaseWrapper
        | ConnectionProxy[Any]
    )
    AsyncProducerConnection: TypeAlias = (
        psycopg.AsyncConnection[Any]
        | psycopg.AsyncCursor[Any]
        | AsyncpgConnection
        | AsyncConnection
        | AsyncSession
        | async_scoped_session[Any]
    )


class ConnectionKind(StrEnum):
    PSYCOPG = "psycopg"
    SQLALCHEMY = "SQLAlchemy"
    DJANGO = "Django"
    ASYNC_PSYCOPG = "psycopg (async)"
    ASYNC_SQLALCHEMY = "SQLAlchemy (async)"
    ASYNCPG = "asyncpg"


_AWAITED: Final = (ConnectionKind.ASYNC_PSYCOPG, ConnectionKind.ASYNC_SQLALCHEMY, ConnectionKind.ASYNCPG)
# The class that a library's connection has among its ancestors: module (or the package that holds it), names.
_KINDS: Final = (
    ("psycopg", ("AsyncConnection", "AsyncCursor"), ConnectionKind.ASYNC_PSYCOPG),
    ("psycopg", ("Connection", "Cursor"), ConnectionKind.PSYCOPG),
    (
        "sqlalchemy.ext.asyncio",
        ("AsyncConnection", "AsyncSession", "async_scoped_session"),
        ConnectionKind.ASYNC_SQLALCHEMY,
    ),
    ("sqlalchemy", ("Connection", "Session", "scoped_session"), ConnectionKind.SQLALCHEMY),
    ("asyncpg", ("Connection", "PoolConnectionProxy"), ConnectionKind.ASYNCPG),
    ("django", ("BaseDatabaseWrapper", "ConnectionProxy"), ConnectionKind.DJANGO),
)
_BLOCKS: Final = {
    ConnectionKind.SQLALCHEMY: "with engine.begin()` without isolation_level='AUTOCOMMIT'",
    ConnectionKind.ASYNC_SQLALCHEMY: "async with engine.begin()` without isolation_level='AUTOCOMMIT'",
    ConnectionKind.DJANGO: "with transaction.atomic():`",
    ConnectionKind.PSYCOPG: "with connection.transaction():`",
}


def kind_of(connection: object, *, awaited: bool) -> ConnectionKind:
    """Refuses what is no connection, and one of the other world: `awaited` says which is asked for."""
    for cls in type(connection).__mro__:
        for module, names, kind in _KINDS:
            if cls.__name__ in names and f"{cls.__module__}.".startswith(f"{module}."):
                return _of_this_world(kind, awaited)
    raise WrongConnection(f"it is a {type(connection).__module__}.{type(connection).__qualname__}")


def _of_this_world(kind: ConnectionKind, awaited: bool) -> ConnectionKind:
    if (kind in _AWAITED) is awaited:
        return kind
    other = "Outbox, without await" if awaited else "AsyncOutbox, with await"
    raise WrongConnection(f"it is of {kind}; use {other}")


def refuse_autocommit(kind: ConnectionKind) -> NoTransaction:
    block = _BLOCKS.get(kind, "async with connection.transaction():`")
    return NoTransaction(f"with {kind}: write `{block} around both")
