"""Every kind of connection that a producer may hand in: the event lives and dies with the caller's transaction."""

import asyncio
import enum
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import AsyncOutbox, Outbox
from outbox.errors import NoTransaction, WrongEntity
from tests.fixtures.django_site import use_database
from tests.fixtures.pgbouncer import Pgbouncer
from tests.fixtures.producers import ANYWHERE, KINDS, ProducerUnderTest, driver, of_asyncpg
from tests.fixtures.queue import EventTable

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
Opening = Callable[[str], AbstractContextManager[ProducerUnderTest]]
every_kind = pytest.mark.parametrize("opened", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def pgbouncer(postgres_url: str) -> Iterator[Pgbouncer]:
    with Pgbouncer.temporary(server_url=postgres_url) as pooler:
        yield pooler


def entities(queue: EventTable) -> list[str]:
    return [row.entity_id for row in queue.rows()]


@every_kind
def test_a_rollback_writes_nothing_and_a_commit_writes_one(opened: Opening, queue: EventTable, database: str) -> None:
    with opened(database) as producer:
        producer.refresh("rolled back")
        assert queue.counts() == {}
        producer.rollback()
        id = producer.refresh("committed", routing="r", traceparent=TRACE)
        assert queue.counts() == {}
        producer.commit()
    (row,) = queue.rows()
    assert (row.id, row.entity_id, row.op, row.routing, row.status) == (id, "committed", "refresh", "r", "pending")
    assert (row.traceparent, row.payload) == (TRACE, None)


@every_kind
def test_a_savepoint_takes_back_only_what_came_after_it(opened: Opening, queue: EventTable, database: str) -> None:
    with opened(database) as producer:
        producer.refresh("before")
        undo = producer.savepoint()
        producer.refresh("inside")
        undo()
        producer.refresh("after")
        producer.commit()
    assert entities(queue) == ["before", "after"]


@every_kind
def test_everything_that_an_event_may_carry_arrives(opened: Opening, queue: EventTable, database: str) -> None:
    raw = '{"big": 12345678901234567890, "p": 1.10, "é": "日本 \\u0041 %s :x $1"}'
    with opened(database) as producer:
        id = producer.enqueue("x", raw, version=2**62, routing="r", idempotency_key="k", traceparent=TRACE)
        again = producer.enqueue("x", raw, idempotency_key="k")
        plain = producer.enqueue("%s :id $1", {"a": 1})
        producer.commit()
    assert again == id
    row = queue.row(id)
    assert (row.event_version, row.routing, row.traceparent) == (2**62, "r", TRACE)
    assert queue.value("select payload::text from search_outbox_events where id = %s", id) == raw
    assert queue.row(plain).entity_id == "%s :id $1"


class Colour(enum.Enum):
    RED = "red"


def test_what_is_no_id_is_refused_before_anything_is_sent(queue: EventTable) -> None:
    """None is the key of an object that was never flushed."""
    library = Outbox(ANYWHERE)
    wrong: Any
    with queue.connection.transaction():
        for wrong in (None, b"7", True, Colour.RED, object(), (5,), 5.0, Decimal("nan")):
            with pytest.raises(WrongEntity, match="is no id"):
                library.refresh(queue.connection, "article", wrong)
        with pytest.raises(WrongEntity, match="is no entity type"):
            library.refresh(queue.connection, wrong, 1)
        id = UUID(int=7)
        for right in ("5", 6, id, Decimal("1E+2"), Decimal("1.50")):
            library.refresh(queue.connection, "article", right)
    assert entities(queue) == ["5", "6", str(id), "100", "1.50"]


@every_kind
def test_a_pool_of_transactions_before_postgresql_changes_nothing(
    opened: Opening, queue: EventTable, database: str, pgbouncer: Pgbouncer
) -> None:
    """More writes than any driver needs to prepare a statement; another client takes the sessions in between."""
    pooled = pgbouncer.before(database)
    with opened(pooled) as producer, psycopg.connect(pooled, prepare_threshold=None) as other:
        for n in range(8):
            producer.refresh(f"kept{n}")
            producer.commit()
            other.execute("select 1")
            producer.refresh(f"dropped{n}")
            producer.rollback()
            other.rollback()
    assert entities(queue) == [f"kept{n}" for n in range(8)]


# What is refused


def test_a_connection_in_autocommit_is_refused_with_the_remedy(queue: EventTable, database: str) -> None:
    library = Outbox(ANYWHERE)
    with pytest.raises(NoTransaction, match=r"in autocommit.*with connection\.transaction\(\)"):
        library.refresh(queue.connection, "article", 1)
    engine = create_engine(driver(database, "psycopg"), isolation_level="AUTOCOMMIT")
    with Session(engine) as session, engine.connect() as connection:
        for given in (session, connection):
            with pytest.raises(NoTransaction, match=r"isolation_level='AUTOCOMMIT'"):
                library.enqueue(given, "article", 1, "upsert")
    engine.dispose()
    with use_database(database):
        from django.db import connection as djangos

        with pytest.raises(NoTransaction, match=r"transaction\.atomic\(\)"):
            library.refresh(djangos, "article", 1)
    assert queue.counts() == {}


def test_an_asynchronous_connection_in_autocommit_is_refused_too(queue: EventTable, database: str) -> None:
    async def run() -> None:
        library = AsyncOutbox(ANYWHERE)
        connection = await asyncpg.connect(of_asyncpg(database))
        with pytest.raises(NoTransaction, match=r"async with connection\.transaction\(\)"):
            await library.refresh(connection, "article", 1)
        await connection.close()
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as another:
            with pytest.raises(NoTransaction, match=r"async with connection\.transaction"):
                await library.refresh(another, "article", 1)
        for name in ("psycopg", "asyncpg"):
            engine = create_async_engine(driver(database, name), isolation_level="AUTOCOMMIT")
            async with AsyncSession(engine) as session, engine.connect() as third:
                for given in (session, third):
                    with pytest.raises(NoTransaction, match=r"isolation_level='AUTOCOMMIT'"):
                        await library.refresh(given, "article", 1)
            await engine.dispose()

    asyncio.run(run())
    assert queue.counts() == {}
