"""Producers' interface in SQL, outbox_enqueue; and attach on an adopted table. All else of attach: test_attach.py."""

import threading
from typing import Any

import psycopg
import pytest

from outbox.store.attach.attach import attach
from outbox.store.attach.tables import CannotAttach
from outbox.store.schema.migrate import migrate
from tests.fixtures.guide_table import create_guide_table
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually


def events(conn: psycopg.Connection) -> list[tuple[Any, ...]]:
    """What was written, in order: op, id, routing."""
    return conn.execute("select op, entity_id::text, routing from search_outbox_events order by seq").fetchall()


class TestEnqueue:
    def test_everything_else_has_a_name(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "select outbox_enqueue('article', '7', 'upsert', '{\"a\": 1.10}', version => 9, routing => 'r',"
            " idempotency_key => 'k', traceparent => 't')"
        )
        row = connection.execute(
            "select payload::text, event_version, routing, idempotency_key, traceparent from search_outbox_events"
        )
        assert row.fetchone() == ('{"a": 1.10}', 9, "r", "k", "t")

    def test_a_known_key_returns_the_event_that_has_it(self, connection: psycopg.Connection) -> None:
        call = "select outbox_enqueue('article', '7', 'upsert', idempotency_key => 'k')"
        first, second = connection.execute(call).fetchone(), connection.execute(call).fetchone()
        assert first == second
        assert len(events(connection)) == 1

    @pytest.mark.parametrize("log", [False, True], ids=["table", "log"])
    def test_two_producers_with_one_key_at_once_get_one_event(self, database: str, log: bool) -> None:
        migrate(database, log=log)
        call = "select outbox_enqueue('article', '7', 'upsert', idempotency_key => 'k')"
        found: list[Any] = []

        def second() -> None:
            with psycopg.connect(database) as conn:
                found.append(conn.execute(call).fetchone())

        with psycopg.connect(database) as first:
            mine = first.execute(call).fetchone()
            thread = threading.Thread(target=second)
            thread.start()
            eventually(lambda: waiting(database))
            first.commit()
            thread.join(PATIENCE_SECONDS)
            written = f"select count(*) from search_outbox_{'log' if log else 'events'}"
            assert first.execute(written.encode()).fetchone() == (1,)
        assert found == [mine]

    @pytest.mark.parametrize(
        ("arguments", "sqlstate", "message"),
        [
            ("'', '7', 'upsert'", "22023", "entity_type is empty"),
            ("null, '7', 'upsert'", "22023", "entity_type is empty"),
            ("'article', '', 'upsert'", "22023", "entity_id is empty"),
            ("'article', null, 'upsert'", "22023", "entity_id is empty"),
            ("'article', repeat('é', 257), 'upsert'", "22001", "entity_id has 514 bytes"),
            ("'article', '7', 'not-a-real-op'", "22023", "unknown op 'not-a-real-op'"),
            ("'article', '7', null", "22023", "unknown op null"),
            ("'article', '7', 'upsert', '[1]'", "22023", "payload is a json array"),
            ("'article', '7', 'upsert', 'null'", "22023", "payload is a json null"),
            ("'article', '7', 'upsert', '{'", "22P02", "invalid input syntax for type json"),
            ("'article', '7', 'upsert', version => -1", "22003", "version -1 is negative"),
        ],
    )
    def test_what_the_worker_would_fail_is_refused_early(
        self, connection: psycopg.Connection, arguments: str, sqlstate: str, message: str
    ) -> None:
        with pytest.raises(psycopg.Error, match=message) as refused:
            connection.execute(f"select outbox_enqueue({arguments})".encode())
        assert refused.value.sqlstate == sqlstate
        assert events(connection) == []

    def test_the_callers_search_path_does_not_matter(self, connection: psycopg.Connection) -> None:
        connection.execute("create schema elsewhere")
        connection.execute("set search_path = elsewhere")
        connection.execute("select public.outbox_enqueue('article', '7', 'upsert')")
        connection.execute("set search_path = public")
        assert events(connection) == [("upsert", "7", None)]


def waiting(database: str) -> bool:
    with psycopg.connect(database) as conn:
        waiters = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        return conn.execute(waiters).rowcount > 0


def test_attach_works_on_an_adopted_table_whose_ids_are_uuids(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as conn:
        create_guide_table(conn)
        migrate(empty_database)
        conn.execute("create table article (id uuid primary key default gen_random_uuid(), n int)")
        attach(conn, "article", entity_type="article", id_column="id")
        conn.execute("insert into article (n) values (1)")
        conn.execute("delete from article")
        assert [op for op, _, _ in events(conn)] == ["refresh", "delete"]
        for column in ("n", "name"):  # what the column of the events cannot store would fail the user's write
            conn.execute(f"create table by_{column} (n int primary key, name text not null unique)".encode())
            with pytest.raises(CannotAttach, match="cannot always store"):
                attach(conn, f"by_{column}", entity_type="x", id_column=column)
        with pytest.raises(CannotAttach, match="stores 50 characters"):
            attach(conn, "article", entity_type="x" * 51, id_column="id")
