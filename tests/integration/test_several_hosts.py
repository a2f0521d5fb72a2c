"""A DATABASE_URL of several hosts, over a real primary and a real standby: what writes never stays on the standby."""

from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.embedded import EmbeddedPostgres
from outbox.errors import DatabaseDown
from outbox.store.pool import Database, connect, fetch_rows
from outbox.store.schema.migrate import migrate
from tests.fixtures.pgbouncer import Pgbouncer
from tests.fixtures.processes import StartProcess
from tests.fixtures.queue import EventTable
from tests.fixtures.replica import SETTINGS, StreamingReplica
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.temporary(settings=SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def database(primary: EmbeddedPostgres) -> str:
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("create database several_hosts")
    url = primary.database_url("several_hosts")
    migrate(url)
    return url


@pytest.fixture(scope="module")
def standby(primary: EmbeddedPostgres, database: str) -> Iterator[EmbeddedPostgres]:
    StreamingReplica.primary = primary
    with StreamingReplica.temporary(settings=SETTINGS) as server:
        yield server


def on(database: str, *servers: EmbeddedPostgres, **more: str) -> str:
    """This database by the addresses of these servers, in this order."""
    parts = urlsplit(database)
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    query = "&".join([parts.query, *(f"{name}={value}" for name, value in more.items())])
    return parts._replace(netloc=f"{parts.username}:{parts.password}@{hosts}", query=query).geturl()


@pytest.fixture
def hosts(database: str, primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> str:
    return on(database, standby, primary)


def open_pool(stack: ExitStack, url: str, *, may_be_standby: bool = False) -> Database:
    pool = Database(url, size=1, timeout_seconds=1.0, may_be_standby=may_be_standby)
    stack.callback(pool.close)
    pool.open()
    return pool


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_a_daemon_goes_on_after_a_restart_in_which_only_the_standby_answered(
    start_daemon: StartProcess, primary: EmbeddedPostgres, standby: EmbeddedPostgres, database: str, es: Elasticsearch
) -> None:
    daemon = start_daemon(DATABASE_URL=on(database, primary, standby), OUTBOX_POLL_INTERVAL_SECONDS="0.05")
    daemon.wait_for_http("/readyz")
    primary.stop()
    daemon.wait_for_fact("database.lost")
    primary.start()
    with psycopg.connect(database, autocommit=True) as connection:
        queue = EventTable(database, connection, ExitStack())
        queue.produce_many(50)
        eventually(lambda: queue.counts() == {"done": 50}, within=60, what="50 done events")
    assert daemon.terminate() == 0


@pytest.mark.parametrize("wish", ["", "any", "primary", "prefer-standby"])
def test_what_writes_connects_to_the_primary_whatever_the_url_asks_for(
    stack: ExitStack, database: str, standby: EmbeddedPostgres, primary: EmbeddedPostgres, wish: str
) -> None:
    url = on(database, standby, primary, **({"target_session_attrs": wish} if wish else {}))
    pool = open_pool(stack, url)
    with pool.connection() as connection:
        assert fetch_rows(connection, "select pg_is_in_recovery() as standby") == [{"standby": False}]
    with connect(url) as connection:
        assert connection.execute("select pg_is_in_recovery()").fetchone() == (False,)


def test_one_host_that_is_a_standby_is_an_outage_at_once_and_not_for_comparisons(
    stack: ExitStack, database: str, standby: EmbeddedPostgres, postgres_url: str
) -> None:
    url = on(database, standby)
    with pytest.raises(DatabaseDown, match="read-only"):
        connect(url)
    pool = open_pool(stack, url)
    with pytest.raises(DatabaseDown), pool.connection() as connection:
        connection.execute("select 1")
    with open_pool(stack, url, may_be_standby=True).connection() as connection:
        assert connection.execute("select 1").fetchone()
    with Pgbouncer.temporary(server_url=url) as pooler:
        with pytest.raises(DatabaseDown, match="read-only"):
            connect(pooler.before(url))
        connect(pooler.before(url), may_be_standby=True).close()


def test_a_connection_that_is_of_no_use_is_not_handed_out_again(
    stack: ExitStack, database: str, standby: EmbeddedPostgres
) -> None:
    pool = open_pool(stack, on(database, standby), may_be_standby=True)

    def session() -> int | None:
        try:
            with pool.connection() as connection:
                return connection.info.backend_pid
        except DatabaseDown:  # the next one is still being made
            return None

    for spoiling, said in (
        ("select nextval('search_outbox_version')", "read-only"),
        ("delete from search_outbox_events", "read-only"),
        ("do $$ begin raise exception 'a conflict' using errcode = '40001'; end $$", "a conflict"),
    ):
        before = eventually(session)
        with pytest.raises(DatabaseDown, match=said), pool.connection() as connection:
            connection.execute(spoiling.encode())
        assert eventually(session) != before
