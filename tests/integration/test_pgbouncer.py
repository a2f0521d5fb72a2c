"""Behind a real pgbouncer in transaction mode: the daemon works, nothing stays in a session, the rest is refused."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.errors import PooledAddress
from outbox.store.pool import Database
from outbox.store.pooler import ear
from outbox.store.schema.migrate import migrate
from tests.fixtures.commands import Outbox as Command
from tests.fixtures.pgbouncer import SESSIONS, Pgbouncer
from tests.fixtures.processes import StartProcess

Session = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def pgbouncer(postgres_url: str) -> Iterator[Pgbouncer]:
    with Pgbouncer.temporary(server_url=postgres_url) as pooler:
        yield pooler


@pytest.fixture
def pooled(pgbouncer: Pgbouncer, database: str) -> str:
    """This test's database by way of the pooler."""
    return pgbouncer.before(database)


# What is seen


@pytest.mark.parametrize("prepared", [False, True])
def test_the_pool_leaves_nothing_in_a_session(pooled: str, prepared: bool) -> None:
    pool = Database(pooled, size=1, prepared=prepared)
    pool.open()
    for _ in range(10):
        with pool.connection() as connection:
            connection.execute("select 'again and again'")
    pool.close()
    assert left_behind(pooled) == []


def left_behind(pooled: str) -> list[tuple[Any, ...]]:
    """What every session of the pooler still holds of whoever had it: settings, statements, listeners, locks."""
    looks = """
        select 'setting', name from pg_settings
         where source = 'session' and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone',
                                                   'standard_conforming_strings', 'transaction_read_only',
                                                   'transaction_isolation', 'transaction_deferrable')
        union all select 'statement', name from pg_prepared_statements where name not like 'PGBOUNCER%'
        union all select 'listener', channel from pg_listening_channels() as channel
        union all select 'lock', objid::text from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
    """
    with ExitStack() as stack:
        found, pids = [], set()
        for _ in range(SESSIONS):
            session = stack.enter_context(psycopg.connect(pooled, prepare_threshold=None))
            found += session.execute(looks).fetchall()  # in a transaction: it keeps its session until the end
            pids.add(session.execute("select pg_backend_pid()").fetchone())
        assert len(pids) == SESSIONS
    return found


# What is refused


def test_migrate_and_listen_are_refused_behind_it(pooled: str) -> None:
    with pytest.raises(PooledAddress, match="OUTBOX_DIRECT_DATABASE_URL"):
        migrate(pooled)
    with pytest.raises(PooledAddress), ear(pooled):
        pass
    assert left_behind(pooled) == []


# What works


def test_two_daemons_project_behind_it_and_leave_nothing_in_a_session(
    start_daemon: StartProcess,
    outbox: Command,
    connection: Session,
    pooled: str,
    database: str,
    es: Elasticsearch,
    index: str,
) -> None:
    addresses: dict[str, str | None] = {"DATABASE_URL": pooled, "OUTBOX_DIRECT_DATABASE_URL": database}
    assert outbox("migrate", "--notify", **addresses).code == 0
    daemons = [start_daemon(**addresses, OUTBOX_LISTEN="true", OUTBOX_BATCH_SIZE="50") for _ in range(2)]
    for daemon in daemons:
        daemon.wait_for_http("/readyz")
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload)"
        " select 'article', (n % 300)::text, case n % 10 when 0 then 'delete' else 'upsert' end,"
        " case n % 10 when 0 then null else json_build_object('n', n) end from generate_series(1, 3000) as n"
    )
    assert outbox("wait", "--caught-up", "--timeout", "60", **addresses).code == 0
    states = connection.execute("select status, count(*) from search_outbox_events group by 1").fetchall()
    assert states == [("done", 3000)]
    es.indices.refresh(index=index)
    assert es.count(index=index)["count"] == 270
    assert es.get(index=index, id="article:299")["_source"] == {"n": 2999}
    assert outbox("status", "--json", **addresses).json["schema"]
    assert [daemon.terminate() for daemon in daemons] == [0, 0]
    assert not any(daemon.facts("database.lost") for daemon in daemons)
    assert left_behind(pooled) == []
