"""A primary that was replaced by a promotion and comes back accepting writes: nobody works there; and what comes with
another server is checked before anything is claimed there."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from outbox.embedded import EmbeddedPostgres
from outbox.errors import DatabaseDown
from outbox.store import pool as pools
from outbox.store.pool import Database, ReplacedPrimary, connect, meet, meet_all
from tests.fixtures.replica import SETTINGS, StreamingReplica
from tests.fixtures.waiting import eventually
from tests.integration.test_several_hosts import on

PORT = "select inet_server_port()"


@pytest.fixture(scope="module")
def primaries() -> Iterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    """One that was replaced, and the replica that was promoted in its place. Both accept writes."""
    with EmbeddedPostgres.temporary(settings=SETTINGS) as old:
        StreamingReplica.primary = old
        with StreamingReplica.temporary(settings=SETTINGS) as new:
            with psycopg.connect(new.url, autocommit=True) as connection:
                connection.execute("select pg_promote(true, 60)")
            yield old, new


@pytest.fixture(autouse=True)
def just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_timelines", {})


@pytest.fixture
def hosts(primaries: tuple[EmbeddedPostgres, EmbeddedPostgres]) -> str:
    """libpq takes the first that accepts writes: the old one."""
    return on(primaries[0].url, *primaries)


@pytest.fixture
def pool(hosts: str) -> Iterator[Database]:
    with ExitStack() as stack:
        pool = Database(hosts, size=1, timeout_seconds=1.0)
        stack.callback(pool.close)
        pool.open()
        yield pool


def port(pool: Database) -> int:
    with pool.connection() as connection:
        return int(connection.execute(PORT).fetchone()[0])  # type: ignore[index]


def end_sessions(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'outbox'")


def test_who_has_met_the_new_primary_is_given_no_connection_to_the_old_one(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres], pool: Database
) -> None:
    old, new = primaries
    assert eventually(lambda: port(pool)) == old.port, "nobody has met another one yet"
    with connect(new.url) as connection:
        meet(connection)
    end_sessions(old)
    assert eventually(lambda: found if (found := _port_if_any(pool)) else None, what="a connection") == new.port


def test_a_connection_that_was_made_before_is_given_to_nobody_either(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres], pool: Database
) -> None:
    """Nobody fenced the old primary, so its sessions live on."""
    old, new = primaries
    assert eventually(lambda: port(pool)) == old.port
    with connect(new.url) as connection:
        meet(connection)
    assert eventually(lambda: _port_if_any(pool), what="a connection") == new.port


def _port_if_any(pool: Database) -> int | None:
    try:
        return port(pool)
    except DatabaseDown:  # the next one is still being made
        return None


def test_where_only_the_old_one_answers_it_is_an_outage_that_says_why(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres],
) -> None:
    old, new = primaries
    with connect(new.url) as connection:
        meet(connection)
    with closing(Database(old.url, size=1, timeout_seconds=1.0)) as alone:
        alone.open()
        with pytest.raises(DatabaseDown, match="is on timeline 1 and was replaced"), alone.connection():
            pass


def test_a_process_that_starts_asks_every_host_of_the_url(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres], hosts: str, pool: Database
) -> None:
    meet_all(hosts)
    with (
        connect(primaries[0].url) as connection,
        pytest.raises(ReplacedPrimary, match="on timeline 1 and was replaced: 2 was met"),
    ):
        meet(connection)
    end_sessions(primaries[0])
    assert eventually(lambda: _port_if_any(pool), what="a connection") == primaries[1].port


def test_a_connection_to_another_server_is_given_to_nobody_before_it_was_checked(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres], pool: Database
) -> None:
    old, new = primaries
    checked: list[int] = []

    def check(connection: Connection[TupleRow]) -> None:
        checked.append(int(connection.execute(PORT).fetchone()[0]))  # type: ignore[index]
        if len(checked) == 1:
            raise psycopg.OperationalError("not yet")

    pool.on_other_server = check
    assert (eventually(lambda: port(pool)), checked) == (old.port, []), "the first server is checked at the start"
    with connect(new.url) as connection:
        meet(connection)
    end_sessions(old)
    assert eventually(lambda: _port_if_any(pool), what="a connection") == new.port
    assert checked == [new.port, new.port], "again where it failed"
    end_sessions(new)
    assert eventually(lambda: _port_if_any(pool), what="a connection") == new.port
    assert len(checked) == 2, "once per server"
