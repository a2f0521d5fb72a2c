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


def test_a_copy_that_was_promoted_to_be_read_replaces_nobody(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres], pool: Database
) -> None:
    old, new = primaries
    with closing(Database(new.url, size=1, may_be_standby=True)) as copy:
        copy.open()
        assert eventually(lambda: port(copy)) == new.port
    assert eventually(lambda: port(pool)) == old.port


def test_a_standby_and_a_server_that_does_not_say_are_not_judged(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres],
) -> None:
    with connect(primaries[1].url) as connection:
        assert meet(connection) is not None
        connection.execute("create role nobody_s")
        connection.execute("revoke execute on function pg_control_system() from public")
        connection.execute("set role nobody_s")
        try:
            assert meet(connection) is None
        finally:
            connection.execute("reset role")
            connection.execute("grant execute on function pg_control_system() to public")


def test_a_url_that_names_no_host_goes_on_to_ask_where_the_environment_says(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = primaries
    with connect(new.url) as connection:
        meet(connection)
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(old.port))
    url = old.url.replace(f"127.0.0.1:{old.port}", "")
    with closing(Database(url, size=1, timeout_seconds=1.0)) as pool:
        pool.open()
        with pytest.raises(DatabaseDown, match="was replaced"), pool.connection():
            pass
        monkeypatch.setenv("PGPORT", str(new.port))
        assert eventually(lambda: _port_if_any(pool), what="a connection") == new.port


def test_a_failed_check_of_another_server_is_named(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres], pool: Database
) -> None:
    old, new = primaries
    assert eventually(lambda: port(pool)) == old.port

    def check(connection: Connection[TupleRow]) -> None:
        connection.execute("do $$ begin raise exception 'versions cannot be raised'; end $$")

    pool.on_other_server = check
    with connect(new.url) as connection:
        meet(connection)
    assert eventually(lambda: _refusal(pool), what="the refusal") == (
        "nothing is asked of the server that was promoted: versions cannot be raised"
    )


def _refusal(pool: Database) -> str:
    try:
        port(pool)
    except DatabaseDown as error:
        return error.detail if "versions" in error.detail else ""
    return ""


def test_hosts_that_are_given_by_address_are_not_asked_one_by_one(
    primaries: tuple[EmbeddedPostgres, EmbeddedPostgres],
) -> None:
    meet_all("postgresql://nobody@/postgres?hostaddr=127.0.0.1,127.0.0.1&port=1,2")
