"""What a session brings along (environment, role, database) changes no document and calls no outage."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from elasticsearch import Elasticsearch
from psycopg import sql

from outbox.store.pool import Database, connect
from tests.fixtures.commands import call
from tests.fixtures.joined import JoinedWorld
from tests.fixtures.pgbouncer import Pgbouncer
from tests.fixtures.queue import EventTable

SHELL = {
    "PGTZ": "Asia/Tokyo",
    "PGDATESTYLE": "German",
    "PGCLIENTENCODING": "LATIN1",
    "PGOPTIONS": "-c intervalstyle=iso_8601 -c extra_float_digits=0 -c bytea_output=escape -c search_path=elsewhere",
}
# Each text depends on a setting of the session that reads it.
VIEW = """
create table articles (id bigint primary key, at timestamptz not null, price numeric not null);
create schema elsewhere;
create view search_documents as
    select 'article'::text as entity_type, id as entity_id, json_build_object(
        'at', at, 'at_text', at::text, 'day', at::date, 'day_text', at::date::text, 'age', interval '1 day 2 hours',
        'raw', '\\x00ff'::bytea, 'third', (id / 3::float8)::text, 'shown', to_char(price, 'L9G999D99'),
        'month', to_char(at, 'TMMonth'), 'cash', price::money::text) as document
      from articles
"""


class TextualWorld(JoinedWorld):
    def _prepare(self) -> None:
        self.connection.execute(VIEW.encode())

    def add(self, number: int, first: int = 1) -> None:
        self.connection.execute(
            "insert into articles select g, timestamptz '2024-02-29 22:30:00.25+00' + g * interval '1 hour', g * 1000.5"
            " from generate_series(%s::int, %s::int) g",
            (first, first + number - 1),
        )
        for id in range(first, first + number):
            self.refresh(id)


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> TextualWorld:
    world = TextualWorld(queue, es, elastic_url, index)
    world.add(10)
    world.project()
    return world


@contextmanager
def a_role(queue: EventTable, **settings: str) -> Iterator[str]:
    """The address of this database for a role with settings of its own."""
    role, password, parts = f"role_{uuid4().hex[:8]}", uuid4().hex, urlsplit(queue.url)
    name = sql.Identifier(role)
    queue.connection.execute(sql.SQL("create role {} superuser login password {}").format(name, sql.Literal(password)))
    try:
        for setting, value in settings.items():
            pair = (name, sql.Identifier(setting), sql.Literal(value))
            queue.connection.execute(sql.SQL("alter role {} set {} = {}").format(*pair))
        yield parts._replace(netloc=f"{role}:{password}@{parts.hostname}:{parts.port}").geturl()
    finally:
        queue.connection.execute(sql.SQL("drop role {}").format(name))


def test_verify_and_backfill_from_any_shell_find_the_documents_that_the_daemon_wrote(world: TextualWorld) -> None:
    before = {id: world.source(f"article:{id}") for id in range(1, 11)}
    assert before[3] is not None
    assert before[3]["at_text"] == "2024-03-01 01:30:00.25+00"
    told = call("verify", "--json", "--rate", "0", env=world.environment(**SHELL))
    assert told.code == 0, told.err + told.out
    assert json.loads(told.out)["drift"] == 0
    names = ("--by", "alice", "--reason", "a shell")
    assert call("backfill", *names, env=world.environment(**SHELL)).code == 0
    world.es.indices.refresh(index=world.index)
    assert {id: world.source(f"article:{id}") for id in range(1, 11)} == before


def test_settings_of_roles_and_databases_change_no_document(world: TextualWorld, postgres_url: str) -> None:
    name = world.connection.info.dbname
    world.connection.execute(f"alter database {name} set timezone = 'America/New_York'".encode())
    assert json.loads(call("verify", "--json", "--rate", "0", env=world.environment()).out)["drift"] == 0
    strange = {"timezone": "Asia/Tokyo", "datestyle": "German", "extra_float_digits": "0", "bytea_output": "escape"}
    with a_role(world.queue, intervalstyle="iso_8601", **strange) as url, Pgbouncer.temporary(server_url=url) as pooler:
        for address in (url, pooler.before(url)):
            told = call("verify", "--json", "--rate", "0", env=world.environment(DATABASE_URL=address))
            assert told.code == 0, told.err + told.out
            assert json.loads(told.out)["drift"] == 0


def test_no_variable_of_libpq_changes_a_session_of_ours(queue: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a library in someone's process, whose environment stays as it is."""
    queue.connection.execute("create schema elsewhere; create schema mine")
    for name in ("PGCLIENTENCODING", "PGOPTIONS"):
        monkeypatch.setenv(name, SHELL[name])
    ours = {"search_path": '"$user", public', "client_encoding": "UTF8", "intervalstyle": "postgres"}
    with connect(queue.url) as connection:
        for name, value in ours.items():
            assert connection.execute("select current_setting(%s)", [name]).fetchone() == (value,)
    given = psycopg.conninfo.make_conninfo(queue.url, options="-c search_path=mine")
    with connect(given) as connection:
        assert connection.execute("show search_path").fetchone() == ("mine",)


def test_a_statement_runs_read_committed_and_commits_by_itself(queue: EventTable) -> None:
    name = queue.connection.info.dbname
    queue.connection.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())

    def shown(pool: Database, **options: Any) -> str:
        with pool.transaction(**options) if options else pool.connection() as connection:
            row = connection.execute("show transaction_isolation").fetchone()
            assert row is not None
            return str(row[0])

    pool = queue.pool("strict")
    assert shown(pool) == "read committed"
    assert shown(pool, read_only=True, timeout_ms=1000) == "read committed"
    assert shown(pool, snapshot=True) == "repeatable read"
    with pool.connection() as connection:
        connection.execute("create table mine (n int)")
        assert queue.value("select count(*) from pg_class where relname = 'mine'") == 0
    assert queue.value("select count(*) from mine") == 0


@pytest.mark.parametrize("how", [{"read_only": True}, {"snapshot": True}])
def test_what_is_read_leaves_no_setting_and_no_notification_behind(queue: EventTable, how: dict[str, bool]) -> None:
    """A policy or a function of a table that somebody else owns runs with the reader's session."""
    queue.connection.execute("listen loot")
    pool = queue.pool("one", size=1)
    with pool.transaction(**how) as connection:
        connection.execute("select set_config('search_path', 'elsewhere', false), pg_notify('loot', 'a payload')")
    with pool.connection() as connection:
        assert connection.execute("show search_path").fetchone() != ("elsewhere",)
    assert list(queue.connection.notifies(timeout=0.2)) == []
