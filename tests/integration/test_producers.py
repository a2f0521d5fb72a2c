"""Producers' interfaces: outbox_enqueue, and tables attached with their payloads. Refreshes: test_attach.py."""

import json
import threading
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox.ports import Attachment, AttachResult
from outbox.store.attach.attach import attach, detach
from outbox.store.attach.installed import attachments
from outbox.store.attach.tables import CannotAttach
from outbox.store.schema.migrate import migrate
from tests.fixtures.guide_table import create_guide_table
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def articles(connection: psycopg.Connection) -> psycopg.Connection:
    connection.execute("create table article (id int primary key, tenant text, title text, n int not null default 0)")
    return connection


def events(conn: psycopg.Connection) -> list[tuple[Any, ...]]:
    """What was written, in order: op, id, routing."""
    return conn.execute("select op, entity_id::text, routing from search_outbox_events order by seq").fetchall()


def attach_articles(conn: psycopg.Connection, **more: Any) -> AttachResult:
    return attach(conn, "article", entity_type="article", id_column="id", payload=True, **more)


class TestEnqueue:
    def test_an_event_needs_type_id_and_op(self, connection: psycopg.Connection) -> None:
        row = connection.execute("select outbox_enqueue('article', '7', 'upsert')").fetchone()
        written = connection.execute("select id, entity_type, entity_id, op, payload, status from search_outbox_events")
        assert row is not None
        assert written.fetchone() == (row[0], "article", "7", "upsert", None, "pending")

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

    def test_two_producers_with_one_key_at_once_get_one_event(self, database: str) -> None:
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

    def test_an_event_of_a_rolled_back_transaction_never_was(self, connection: psycopg.Connection) -> None:
        with connection.transaction(force_rollback=True):
            connection.execute("select outbox_enqueue('article', '7', 'upsert')")
        assert events(connection) == []


def waiting(database: str) -> bool:
    with psycopg.connect(database, autocommit=True) as conn:
        waiters = conn.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        return waiters.fetchone() != (0,)


class TestPayload:
    def test_every_change_writes_one_event(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        articles.execute("insert into article values (1), (2)")
        articles.execute("update article set title = 'x' where id = 1")
        articles.execute("insert into article values (1) on conflict (id) do update set title = 'y'")
        articles.execute("delete from article where id = 2")
        ops = [("upsert", "1"), ("upsert", "2"), ("upsert", "1"), ("upsert", "1"), ("delete", "2")]
        assert events(articles) == [(op, entity, None) for op, entity in ops]

    def test_the_payload_is_the_row(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        articles.execute("insert into article values (2, 'a', 'x')")
        articles.execute("delete from article where id = 2")
        payloads = articles.execute("select payload::text from search_outbox_events order by seq").fetchall()
        assert [text and json.loads(text) for (text,) in payloads] == [
            {"id": 2, "tenant": "a", "title": "x", "n": 0},
            None,
        ]

    def test_a_changed_id_is_a_delete_and_an_upsert_also_after_the_table_got_another_name(
        self, articles: psycopg.Connection
    ) -> None:
        articles.execute("insert into article values (1)")
        attach_articles(articles)
        articles.execute("alter table article rename to story")
        articles.execute("update story set id = 2")
        assert events(articles) == [("delete", "1", None), ("upsert", "2", None)]

    def test_a_changed_routing_is_a_delete_with_the_old_one_and_an_upsert(self, articles: psycopg.Connection) -> None:
        articles.execute("insert into article values (1, 'a')")
        attach_articles(articles, routing_column="tenant")
        articles.execute("update article set title = 'x'")
        articles.execute("update article set tenant = 'b'")
        articles.execute("update article set tenant = null")
        articles.execute("delete from article")
        assert events(articles) == [
            ("upsert", "1", "a"),
            ("delete", "1", "a"),
            ("upsert", "1", "b"),
            ("delete", "1", "b"),
            ("upsert", "1", None),
            ("delete", "1", None),
        ]

    def test_two_rows_that_swap_their_ids_both_stay(self, connection: psycopg.Connection) -> None:
        connection.execute("create table article (id int primary key deferrable initially deferred)")
        connection.execute("insert into article values (1), (2)")
        attach_articles(connection)
        connection.execute("update article set id = 3 - id")
        last = connection.execute(
            "select distinct on (entity_id) entity_id, op from search_outbox_events"
            " order by entity_id, event_version desc"
        )
        assert last.fetchall() == [("1", "upsert"), ("2", "upsert")]

    def test_a_row_that_moves_to_another_partition_stays(self, connection: psycopg.Connection) -> None:
        connection.execute("create table article (id int, part int, primary key (id, part)) partition by list (part)")
        connection.execute("create table article_1 partition of article for values in (1)")
        connection.execute("create table article_2 partition of article for values in (2)")
        done = attach_articles(connection)
        assert "two rows with one id in two partitions" in done.notes[0]
        connection.execute("insert into article values (7, 1)")
        connection.execute("update article set part = 2")
        last = connection.execute("select op from search_outbox_events order by event_version desc limit 1")
        assert last.fetchone() == ("upsert",)
        connection.execute("update article set id = 8")
        assert events(connection)[-2:] == [("delete", "7", None), ("upsert", "8", None)]

    def test_names_of_any_kind_are_quoted(self, connection: psycopg.Connection) -> None:
        table, column, kind = 'Ärticle "x"; drop table y', "i'd %s {0}", "o'type\\ {x} %s $capture$"
        name = sql.Identifier(table)
        connection.execute(sql.SQL("create table {} ({} text primary key)").format(name, sql.Identifier(column)))
        attach(connection, table, entity_type=kind, id_column=column, routing_column=column, payload=True)
        connection.execute(sql.SQL("insert into {} values ('a')").format(name))
        row = connection.execute("select entity_type, entity_id, routing, payload from search_outbox_events")
        assert row.fetchone() == (kind, "a", "a", {column: "a"})
        connection.execute(sql.SQL("update {} set {} = 'b'").format(name, sql.Identifier(column)))
        assert len(events(connection)) == 3
        assert attachments(connection) == [
            Attachment(f"public.{table}", kind, column, routing_column=column, payload=True, per_row=True)
        ]
        detach(connection, table)

    def test_an_id_that_is_not_unique_by_itself_is_refused(self, connection: psycopg.Connection) -> None:
        """A delete of one row would delete the document of another."""
        for definition in (
            "tenant text, id int, primary key (tenant, id)",
            "id int unique",
            "id int not null",
            "id int not null, tenant text, unique (id, tenant)",
            "id int not null, ok bool); create unique index on article (id) where (ok",
            "id int not null, n int primary key); create unique index on article ((id + 1)",
            "id int not null, n int primary key); create unique index on article (n) include (id",
        ):
            connection.execute(f"drop table if exists article; create table article ({definition})".encode())
            with pytest.raises(CannotAttach, match=r"by itself.*leave out --payload"):
                attach_articles(connection)
        attach(connection, "article", entity_type="article", id_column="id")  # a refresh needs no key

    @pytest.mark.parametrize(
        ("more", "complaint"),
        [
            ({"columns": ("title",)}, "Leave out --columns"),
            ({"via": "select 1"}, "one of --id COLUMN and --via QUERY"),
        ],
    )
    def test_what_a_payload_cannot_have_is_refused(
        self, articles: psycopg.Connection, more: dict[str, Any], complaint: str
    ) -> None:
        with pytest.raises(CannotAttach, match=complaint):
            attach_articles(articles, **more)

    def test_it_works_on_an_adopted_table_whose_ids_are_uuids(self, empty_database: str) -> None:
        with psycopg.connect(empty_database, autocommit=True) as conn:
            create_guide_table(conn)
            migrate(empty_database)
            conn.execute("create table article (id uuid primary key default gen_random_uuid(), n int)")
            attach_articles(conn)
            conn.execute("insert into article (n) values (1)")
            attach(conn, "article", entity_type="article", id_column="id")
            conn.execute("delete from article")
            assert [op for op, _, _ in events(conn)] == ["upsert", "delete"]
            for column in ("n", "name"):  # what the column of the events cannot store would fail the user's write
                conn.execute(f"create table by_{column} (n int primary key, name text not null unique)".encode())
                for payload in (True, False):
                    with pytest.raises(CannotAttach, match="cannot always store"):
                        attach(conn, f"by_{column}", entity_type="x", id_column=column, payload=payload)
            with pytest.raises(CannotAttach, match="stores 50 characters"):
                attach(conn, "article", entity_type="x" * 51, id_column="id")


class TestVersions:
    def test_who_waits_for_the_row_gets_the_higher_version(self, database: str, articles: psycopg.Connection) -> None:
        articles.execute("insert into article values (1)")
        attach_articles(articles)
        with psycopg.connect(database) as first:
            first.execute("update article set title = 'first'")
            second = threading.Thread(target=update_once, args=(database, "second"))
            second.start()
            eventually(lambda: waiting(database))
            first.commit()
            second.join(PATIENCE_SECONDS)
        titles = articles.execute("select payload ->> 'title' from search_outbox_events order by event_version")
        assert titles.fetchall() == [("first",), ("second",)]

    def test_versions_of_an_entity_grow_in_the_order_of_its_states(
        self, database: str, articles: psycopg.Connection
    ) -> None:
        articles.execute("insert into article select n from generate_series(1, 3) as n")
        attach_articles(articles)
        threads = [threading.Thread(target=count_up, args=(database, 150)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        for entity in ("1", "2", "3"):
            counts = articles.execute(
                "select (payload ->> 'n')::int from search_outbox_events where entity_id = %s order by event_version",
                (entity,),
            ).fetchall()
            assert [n for (n,) in counts] == list(range(1, 201))


def update_once(database: str, title: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("update article set title = %s", (title,))


def count_up(database: str, times: int) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for time in range(times):
            conn.execute("update article set n = n + 1 where id = %s", (1 + time % 3,))
