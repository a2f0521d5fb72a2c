"""Every kind of connection that a producer may hand in: the event lives and dies with the caller's transaction."""

import asyncio
import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import AsyncOutbox, Outbox
from outbox.errors import NoTransaction, WrongConnection, WrongEntity
from tests.fixtures.django_site import use_database
from tests.fixtures.pgbouncer import Pgbouncer
from tests.fixtures.producers import ANYWHERE, KINDS, ProducerUnderTest, driver, of_asyncpg
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import PATIENCE_SECONDS

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
def test_two_threads_write_each_in_its_own_transaction(opened: Opening, queue: EventTable, database: str) -> None:
    together = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    failed: list[BaseException] = []

    def produce(name: str) -> None:
        try:
            with opened(database) as producer:
                for n in range(5):
                    together.wait()
                    producer.refresh(f"{name}{n}")
                    together.wait()
                    producer.commit() if n % 2 == 0 else producer.rollback()
        except BaseException as error:
            failed.append(error)
            together.abort()

    threads = [threading.Thread(target=produce, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert failed == []
    assert sorted(entities(queue)) == ["a0", "a2", "a4", "b0", "b2", "b4"]


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


def test_a_transaction_inside_autocommit_is_taken_also_in_a_pipeline(queue: EventTable, database: str) -> None:
    library = Outbox(ANYWHERE)
    with queue.connection.transaction():
        library.refresh(queue.connection, "article", "block")
    with queue.connection.pipeline():
        with queue.connection.transaction():
            library.refresh(queue.connection, "article", "pipeline")
        with pytest.raises(NoTransaction):
            library.refresh(queue.connection, "article", "alone")

    async def run() -> None:
        connection = await psycopg.AsyncConnection.connect(database, autocommit=True)
        async with connection, connection.pipeline(), connection.transaction():
            await AsyncOutbox(ANYWHERE).refresh(connection, "article", "async pipeline")

    asyncio.run(run())
    assert entities(queue) == ["block", "pipeline", "async pipeline"]


def test_what_is_no_connection_and_what_belongs_to_the_other_class_is_named(database: str) -> None:
    wrong: Any
    for wrong in (create_engine(driver(database, "psycopg")), "postgresql://", None):
        with pytest.raises(WrongConnection, match="engine or a pool would open another"):
            Outbox(ANYWHERE).refresh(wrong, "article", 1)

    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            given: Any = connection
            with pytest.raises(WrongConnection, match="use AsyncOutbox, with await"):
                Outbox(ANYWHERE).refresh(given, "article", 1)
        with psycopg.connect(database) as plain:
            given = plain
            with pytest.raises(WrongConnection, match="use Outbox, without await"):
                await AsyncOutbox(ANYWHERE).refresh(given, "article", 1)

    asyncio.run(run())


def test_the_programs_own_settings_of_a_connection_do_not_matter(queue: EventTable, database: str) -> None:
    """Rows as dictionaries, a cursor with results that are still to be read, an encoder of json."""
    with psycopg.connect(database, row_factory=dict_row) as connection, connection.cursor() as cursor:
        cursor.execute("select generate_series(1, 3) as n")
        Outbox(ANYWHERE).refresh(cursor, "article", "dictionaries")
        assert [row["n"] for row in cursor.fetchall()] == [1, 2, 3]

    async def run() -> None:
        connection = await asyncpg.connect(of_asyncpg(database))
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=repr, decoder=repr, schema="pg_catalog")
        async with connection.transaction():
            await AsyncOutbox(ANYWHERE).enqueue(connection, "article", "encoder", "upsert", '{"a": 1.10}')
        await connection.close()

    asyncio.run(run())
    assert entities(queue) == ["dictionaries", "encoder"]
    assert queue.value("select payload::text from search_outbox_events order by seq desc limit 1") == '{"a": 1.10}'


def test_no_library_of_others_is_imported_for_a_producer() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from outbox import AsyncOutbox, Outbox; Outbox('postgresql://x@y/z'); AsyncOutbox('postgresql://x@y/z')\n"
        "print(sorted({'asyncpg', 'django', 'sqlalchemy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
