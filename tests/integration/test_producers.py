"""Producers' doors: outbox_enqueue, and the trigger that attach installs on a table of the user's."""

import json
import threading
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox.errors import SchemaMismatch
from outbox.store.migrations import migrate
from outbox.store.producer_tables import CannotAttach
from outbox.store.producers import AttachedOtherwise, Attachment, NotAttached, attach, attachments, detach
from tests.fixtures.guide_table import create_guide_table
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def articles(connection: psycopg.Connection) -> psycopg.Connection:
    connection.execute("create table article (id int primary key, tenant text, title text, n int not null default 0)")
    return connection


def events(conn: psycopg.Connection) -> list[tuple[Any, ...]]:
    """What was written, in order: op, id, routing."""
    return conn.execute("select op, entity_id::text, routing from search_outbox_events order by seq").fetchall()


def attach_articles(conn: psycopg.Connection, **more: Any) -> Attachment:
    return attach(conn, "article", entity_type="article", id_column="id", **more)


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


class TestAttach:
    def test_every_change_writes_one_event(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        articles.execute("insert into article values (1), (2)")
        articles.execute("update article set title = 'x' where id = 1")
        articles.execute("insert into article values (1) on conflict (id) do update set title = 'y'")
        articles.execute("delete from article where id = 2")
        ops = [("upsert", "1"), ("upsert", "2"), ("upsert", "1"), ("upsert", "1"), ("delete", "2")]
        assert events(articles) == [(op, entity, None) for op, entity in ops]

    def test_the_payload_is_left_to_the_view_unless_asked_for(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        articles.execute("insert into article values (1, 'a', 'x')")
        attach_articles(articles, payload=True)
        articles.execute("insert into article values (2, 'a', 'x')")
        articles.execute("delete from article where id = 2")
        payloads = articles.execute("select payload::text from search_outbox_events order by seq").fetchall()
        assert [text and json.loads(text) for (text,) in payloads] == [
            None,
            {"id": 2, "tenant": "a", "title": "x", "n": 0},
            None,
        ]

    def test_a_changed_id_is_a_delete_and_an_upsert(self, articles: psycopg.Connection) -> None:
        articles.execute("insert into article values (1)")
        attach_articles(articles)
        articles.execute("update article set id = 2")
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

    def test_cascaded_deletes_are_events_too(self, connection: psycopg.Connection) -> None:
        connection.execute("create table author (id int primary key)")
        connection.execute("create table article (id int primary key, author int references author on delete cascade)")
        connection.execute("insert into author values (1)")
        connection.execute("insert into article values (10, 1), (11, 1)")
        attach_articles(connection)
        connection.execute("delete from author")
        assert sorted(events(connection)) == [("delete", "10", None), ("delete", "11", None)]

    def test_it_fires_also_where_ordinary_triggers_do_not(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        articles.execute("set session_replication_role = replica")
        articles.execute("insert into article values (1)")
        assert events(articles) == [("upsert", "1", None)]

    def test_an_event_is_part_of_the_writers_transaction(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        with articles.transaction(force_rollback=True):
            articles.execute("insert into article values (1)")
        assert events(articles) == []

    def test_the_writers_search_path_does_not_matter(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        articles.execute("create schema elsewhere")
        articles.execute("set search_path = elsewhere")
        articles.execute("insert into public.article values (1)")
        articles.execute("set search_path = public")
        assert events(articles) == [("upsert", "1", None)]

    def test_truncate_is_refused_while_attached(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        with pytest.raises(psycopg.errors.ObjectInUse, match="attached to the outbox"):
            articles.execute("truncate article")
        detach(articles, "article")
        articles.execute("truncate article")

    def test_a_partitioned_table_is_attached_with_its_partitions(self, connection: psycopg.Connection) -> None:
        connection.execute("create table article (id int, part int, primary key (id, part)) partition by list (part)")
        connection.execute("create table article_1 partition of article for values in (1)")
        connection.execute("create table article_2 partition of article for values in (2)")
        attach_articles(connection)
        connection.execute("insert into article values (7, 1)")
        connection.execute("update article set part = 2")
        last = connection.execute("select op from search_outbox_events order by event_version desc limit 1")
        assert last.fetchone() == ("upsert",)
        with pytest.raises(psycopg.errors.ObjectInUse):
            connection.execute("truncate article_2")
        assert [attached.table for attached in attachments(connection)] == ["public.article"]
        detach(connection, "article")
        connection.execute("truncate article")

    def test_names_of_any_kind_are_quoted(self, connection: psycopg.Connection) -> None:
        table, column, kind = 'Ärticle "x"; drop table y', "i'd %s {0}", "o'type\\ {x} %s"
        name = sql.Identifier(table)
        connection.execute(sql.SQL("create table {} ({} text primary key)").format(name, sql.Identifier(column)))
        attach(connection, table, entity_type=kind, id_column=column, routing_column=column, payload=True)
        connection.execute(sql.SQL("insert into {} values ('a')").format(name))
        row = connection.execute("select entity_type, entity_id, routing, payload from search_outbox_events")
        assert row.fetchone() == (kind, "a", "a", {column: "a"})
        assert attachments(connection) == [Attachment(f"public.{table}", kind, column, column, payload=True)]
        detach(connection, table)

    def test_a_renamed_table_is_detached_with_its_function(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        articles.execute("alter table article rename to story")
        detach(articles, "story")
        left = articles.execute("select count(*) from pg_proc where proname like 'search_outbox_capture%'")
        assert left.fetchone() == (0,)

    def test_attaching_twice_is_the_same_as_once(self, articles: psycopg.Connection) -> None:
        assert attach_articles(articles) == attach_articles(articles)
        articles.execute("insert into article values (1)")
        assert len(events(articles)) == 1

    def test_attaching_as_another_type_is_refused(self, articles: psycopg.Connection) -> None:
        attach_articles(articles)
        with pytest.raises(AttachedOtherwise, match="attached as article by id"):
            attach(articles, "article", entity_type="story", id_column="id")

    def test_detaching_what_is_not_attached_is_said(self, articles: psycopg.Connection) -> None:
        with pytest.raises(NotAttached, match=r"public\.article"):
            detach(articles, "article")

    @pytest.mark.parametrize(
        ("table", "entity_type", "id_column", "complaint"),
        [
            ("nothing", "article", "id", "no table nothing"),
            ("no thing; at.all", "article", "id", "no table no thing"),
            ("article", "", "id", "type is empty"),
            ("article", "a:b", "id", "has a colon"),
            ("article", "a$capture$b", "id", "cannot be quoted"),
            ("article", "article", "uid", "has no column uid. It has id, n, tenant, title"),
            ("article", "article", "title", "must be NOT NULL and in a unique index"),
            ("article", "article", "n", "must be NOT NULL and in a unique index"),
            ("article_view", "article", "id", "is not a table"),
            ("scratch", "article", "id", "temporary or unlogged"),
            ("search_outbox_events", "article", "id", "belongs to the outbox itself"),
        ],
    )
    def test_a_table_that_cannot_be_attached_is_refused_with_the_reason(
        self, articles: psycopg.Connection, table: str, entity_type: str, id_column: str, complaint: str
    ) -> None:
        articles.execute("create view article_view as select * from article")
        articles.execute("create unlogged table scratch (id int primary key)")
        with pytest.raises(CannotAttach, match=complaint):
            attach(articles, table, entity_type=entity_type, id_column=id_column)
        assert attachments(articles) == []

    def test_without_the_schema_it_names_the_command_that_helps(self, empty_database: str) -> None:
        with psycopg.connect(empty_database, autocommit=True) as conn:
            conn.execute("create table article (id int primary key)")
            with pytest.raises(SchemaMismatch, match="outbox migrate"):
                attach_articles(conn)

    def test_it_works_on_an_adopted_table_whose_ids_are_uuids(self, empty_database: str) -> None:
        with psycopg.connect(empty_database, autocommit=True) as conn:
            create_guide_table(conn)
            migrate(empty_database)
            conn.execute("create table article (id uuid primary key default gen_random_uuid(), n int)")
            attach_articles(conn, payload=True)
            conn.execute("insert into article (n) values (1)")
            conn.execute("delete from article")
            assert [op for op, _, _ in events(conn)] == ["upsert", "delete"]


class TestVersions:
    def test_who_waits_for_the_row_gets_the_higher_version(self, database: str, articles: psycopg.Connection) -> None:
        articles.execute("insert into article values (1)")
        attach_articles(articles, payload=True)
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
        attach_articles(articles, payload=True)
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
