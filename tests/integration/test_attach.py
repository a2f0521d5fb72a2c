"""Tables attached by refreshes: what each kind of change writes, with triggers per statement and per row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox.embedded import EmbeddedPostgres
from outbox.ops.doctor import documents as attachment_findings
from outbox.ports import AttachmentFacts, Level
from outbox.store.attach import installed
from outbox.store.attach.attach import NotAttached, attach, detach
from outbox.store.attach.installed import attachments
from outbox.store.attach.tables import CannotAttach
from outbox.store.schema.migrate import migrate
from tests.fixtures.connect import drop_slot
from tests.fixtures.fanouts import found, waiting
from tests.fixtures.postgres import admin, fresh_database, with_database
from tests.fixtures.servers import POSTGRES_SETTINGS
from tests.fixtures.waiting import eventually

TABLES = """
create table authors (id int primary key, name text, notes json);
create table articles (id int primary key, author_id int references authors on delete cascade, tenant text, title text,
                       price numeric, data json);
create table comments (id int primary key, article_id int references articles on delete cascade, body text);
insert into authors values (1, 'Ada'), (2, 'Bo');
insert into articles values (10, 1, 'a', 'x'), (11, 1, 'a', 'y'), (20, 2, 'b', 'z');
"""
VIA = "select id from articles where author_id = changed.id"
ROUTED_VIEW = (
    "create view search_documents as select 'article'::text as entity_type, id as entity_id, to_json(a) as document,"
    " tenant as routing, null::bigint as version from articles as a"
)
SCANNING = (
    "insert into articles select n, 1 from generate_series(100, 20100) as n; analyze articles; drop index by_author"
)
Connection = psycopg.Connection[Any]


@pytest.fixture
def shop(connection: Connection) -> Connection:
    connection.execute(TABLES)
    return connection


@pytest.fixture(params=[False, True], ids=["per statement", "per row"])
def per_row(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def written(conn: Connection, *statements: str) -> list[str]:
    """The ids that the statements refresh, in order of their texts, each time that they are written; then forgotten.
    Fan-outs stand for what they find now."""
    for statement in statements:
        conn.execute(statement.encode())
    fanned = [id for fanout in waiting(conn) for id in found(conn, fanout)]
    conn.execute("delete from search_outbox_events where op = 'fanout'")
    rows = conn.execute("delete from search_outbox_events returning entity_id::text, op, payload is null").fetchall()
    assert {(op, no_payload) for _, op, no_payload in rows} <= {("refresh", True), ("delete", True)}
    return sorted([*fanned, *(id for id, _, _ in rows)])


def own(conn: Connection, **more: Any) -> None:
    attach(conn, "articles", entity_type="article", id_column="id", **more)


def child(conn: Connection, **more: Any) -> None:
    attach(conn, "comments", entity_type="article", id_column="article_id", **more)


def via(conn: Connection, **more: Any) -> None:
    attach(conn, "authors", entity_type="article", via=VIA, **more)


class TestChanges:
    def test_every_kind_of_write_refreshes_its_rows(self, shop: Connection, per_row: bool) -> None:
        own(shop, per_row=per_row)
        assert written(shop, "insert into articles (id) values (1), (2)") == ["1", "2"]
        assert written(shop, "update articles set title = 'x' where id < 3") == ["1", "2"]
        assert written(shop, "update articles set id = 3 where id = 2") == ["2", "3"]
        upsert = "insert into articles (id) values (3), (4) on conflict (id) do update set title = 'y'"
        assert written(shop, upsert) == ["3", "4"]
        assert written(shop, "insert into articles (id) values (3) on conflict do nothing") == []
        merge = (
            "merge into articles as a using (values (1), (4), (5)) as v (id) on a.id = v.id"
            " when matched and v.id = 1 then delete when matched then update set title = 'm'"
            " when not matched then insert (id) values (v.id)"
        )
        assert written(shop, merge) == ["1", "4", "5"]
        with shop.cursor().copy("copy articles (id) from stdin") as copy:
            copy.write("6\n7\n")
        assert written(shop) == ["6", "7"]
        both = (
            "with gone as (delete from articles where id = 6 returning id) update articles set title = 'w' where id = 7"
        )
        assert written(shop, both) == ["6", "7"]
        assert written(shop, "update articles set title = 'none' where false") == []
        assert written(shop, "delete from articles where id = 7") == ["7"]
        with shop.transaction(force_rollback=True):
            shop.execute("delete from articles")
        assert written(shop) == [], "events belong to the writer's transaction"

    def test_only_the_end_of_an_entitys_own_row_is_written_as_a_delete(self, shop: Connection, per_row: bool) -> None:
        """The projector looks up both; what a delete tells it is that the view must lack the entity."""
        shop.execute("create table extras (article_id bigint primary key references articles on delete cascade)")
        shop.execute("insert into extras select id from articles")
        own(shop, per_row=per_row)
        child(shop, per_row=per_row)
        attach(shop, "extras", entity_type="article", id_column="article_id", per_row=per_row)
        shop.execute("insert into comments values (1, 10)")
        shop.execute("delete from search_outbox_events")
        shop.execute("delete from comments")
        shop.execute("delete from extras where article_id = 10")
        shop.execute("delete from articles where id = 10")
        rows = shop.execute("select op, entity_id from search_outbox_events order by seq").fetchall()
        assert rows == [("refresh", "10"), ("refresh", "10"), ("delete", "10")]

    def test_a_child_refreshes_its_parent_also_when_it_goes(self, shop: Connection, per_row: bool) -> None:
        child(shop, per_row=per_row)
        assert written(shop, "insert into comments values (1, 10), (2, 20), (3, null)") == ["10", "20"]
        assert written(shop, "update comments set body = 'x' where id = 1") == ["10"]
        assert written(shop, "update comments set article_id = 11 where id = 1") == ["10", "11"]
        assert written(shop, "update comments set article_id = null where id = 2") == ["20"]
        assert written(shop, "update comments set body = 'y' where id in (2, 3)") == []
        assert written(shop, "delete from comments") == ["11"]

    def test_a_thousand_children_of_one_parent_are_one_event_of_their_statement(self, shop: Connection) -> None:
        child(shop)
        fill = "insert into comments select n, 10, 'x' from generate_series(1, 1000) as n"
        assert written(shop, fill) == ["10"]
        assert written(shop, "delete from comments") == ["10"]
        child(shop, per_row=True)
        assert written(shop, fill) == ["10"] * 1000

    def test_a_query_finds_the_documents_that_a_row_belongs_to(self, shop: Connection, per_row: bool) -> None:
        via(shop, per_row=per_row)
        assert written(shop, "update authors set name = 'x' where id = 1") == ["10", "11"]
        assert written(shop, "insert into authors values (3)") == []
        shop.execute("alter table articles drop constraint articles_author_id_fkey")
        assert written(shop, "update authors set id = 2 - id where id = 2") == ["20"]
        assert written(shop, "delete from authors where id = 1") == ["10", "11"]

    def test_only_changes_of_the_named_columns_count(self, shop: Connection, per_row: bool) -> None:
        own(shop, per_row=per_row, columns=("title", "data"))
        assert written(shop, "update articles set price = 1") == []
        assert written(shop, "update articles set title = title, price = 2") == []
        assert written(shop, "update articles set title = 'n' where id = 10") == ["10"]
        assert written(shop, "update articles set title = null where id = 10") == ["10"]
        assert written(shop, """update articles set data = '{"a": 1}' where id = 11""") == ["11"]
        assert written(shop, """update articles set data = '{"a":  1}', price = 3""") == ["10", "11", "20"]
        assert written(shop, "update articles set id = 12 where id = 11") == ["11", "12"]
        swap = "update articles set title = case title when 'y' then 'z' else 'y' end where id in (12, 20)"
        assert written(shop, swap) == ["12", "20"]
        assert written(shop, "insert into articles (id) values (1)", "delete from articles where id = 1") == ["1", "1"]

    def test_columns_of_a_table_without_a_key_are_compared_row_by_row(self, shop: Connection) -> None:
        shop.execute("create table ratings (article_id int, stars int); insert into ratings values (10, 1), (10, 2)")
        done = attach(shop, "ratings", entity_type="article", id_column="article_id", columns=("stars",))
        assert "no primary key" in done.notes[0]
        assert written(shop, "update ratings set stars = 3 - stars") == ["10", "10"]
        assert written(shop, "update ratings set stars = stars") == []


class TestCircumstances:
    def test_cascades_of_foreign_keys_refresh(self, shop: Connection, per_row: bool) -> None:
        shop.execute("insert into comments values (1, 10), (2, 10), (3, 20)")
        own(shop, per_row=per_row)
        child(shop, per_row=per_row)
        assert set(written(shop, "delete from articles where id = 10")) == {"10"}
        assert set(written(shop, "delete from authors where id = 1")) == {"11"}
        shop.execute("alter table articles drop constraint articles_author_id_fkey")
        shop.execute("alter table articles add foreign key (author_id) references authors on delete set null")
        assert written(shop, "delete from authors") == ["20"]

    def test_they_fire_where_ordinary_triggers_do_not(self, shop: Connection, per_row: bool) -> None:
        own(shop, per_row=per_row, columns=("title",))
        via(shop, per_row=per_row)
        shop.execute("set session_replication_role = replica")
        assert written(shop, "update articles set title = 'r' where id = 10") == ["10"]
        assert written(shop, "update authors set name = 'r' where id = 2") == ["20"]

    def test_nothing_of_the_writers_session_matters(self, shop: Connection, per_row: bool) -> None:
        """Neither its search_path nor a temporary table of the same name, nor how it reads backslashes."""
        query = r"select id from articles where author_id = changed.id and title <> 'a\' -- it's the last line"
        attach(shop, "authors", entity_type=r"art\icle", via=query, per_row=per_row, columns=("name",))
        own(shop, per_row=per_row)
        shop.execute("create schema elsewhere; create table elsewhere.articles (id int, author_id int, title text)")
        shop.execute("insert into elsewhere.articles values (666, 1, '')")
        shop.execute("create temp table articles (id int, author_id int, title text)")
        shop.execute("create temp table search_outbox_events (like public.search_outbox_events)")
        shop.execute("set search_path = elsewhere; set standard_conforming_strings = off; set datestyle = german")
        shop.execute("update public.authors set name = 'x' where id = 1; update public.articles set title = 'n'")
        shop.execute("reset all; drop table pg_temp.articles, pg_temp.search_outbox_events")
        types = shop.execute("select distinct entity_type from search_outbox_events order by 1").fetchall()
        assert types == [(r"art\icle",), ("article",)]
        assert written(shop) == ["10", "10", "11", "11", "20"]

    def test_truncate_is_refused_until_the_last_way_is_detached(self, shop: Connection) -> None:
        child(shop)
        attach(shop, "comments", entity_type="user", via="select changed.id")
        for statement in ("truncate comments", "truncate articles cascade"):
            with pytest.raises(psycopg.errors.ObjectInUse, match="attached to the outbox"):
                shop.execute(statement.encode())
        assert [gone.entity_type for gone in detach(shop, "comments", entity_type="user")] == ["user"]
        with pytest.raises(psycopg.errors.ObjectInUse):
            shop.execute("truncate comments")
        detach(shop, "comments")
        shop.execute("truncate comments")

    def test_a_partitioned_table_refreshes_by_rows_whatever_a_statement_names(self, connection: Connection) -> None:
        connection.execute("create table m (id int, part int, t text, primary key (id, part)) partition by list (part)")
        connection.execute("create table m_1 partition of m for values in (1)")
        done = attach(connection, "m", entity_type="m", id_column="id", columns=("t",))
        assert "statements that name a partition" in done.notes[0]
        attach(connection, "m", entity_type="n", via="select changed.id + 100")
        connection.execute("create table m_2 (part int, t text, id int not null, primary key (id, part))")
        connection.execute("alter table m attach partition m_2 for values in (2)")
        assert written(connection, "insert into m_1 values (7, 1)") == ["107", "7"]
        assert set(written(connection, "update m set part = 2")) == {"107", "7"}
        assert written(connection, "update m_2 set t = 'x'") == ["107", "7"]
        assert written(connection, "update m_2 set t = t") == ["107"]
        assert written(connection, "delete from m") == ["107", "7"]
        with pytest.raises(psycopg.errors.ObjectInUse):
            connection.execute("truncate m_1")
        with pytest.raises(CannotAttach, match="Attach its parent"):
            attach(connection, "m_1", entity_type="m", id_column="id")
        assert [each.entity_type for each in attachments(connection)] == ["m", "n"]
        detach(connection, "m")
        connection.execute("truncate m")
        assert left_behind(connection) == []

    def test_a_child_table_refreshes_also_when_the_statement_names_its_parent(self, connection: Connection) -> None:
        connection.execute("create table base (id int); create table leaf () inherits (base)")
        with pytest.raises(CannotAttach, match="has child tables"):
            attach(connection, "base", entity_type="x", id_column="id")
        done = attach(connection, "leaf", entity_type="x", id_column="id")
        assert "statements that name its parent" in done.notes[0]
        connection.execute("insert into base values (1)")
        assert written(connection, "insert into leaf values (2)", "update base set id = id") == ["2", "2"]

    def test_generated_columns_count_where_they_are_stored(self, connection: Connection, per_row: bool) -> None:
        connection.execute("create table t (id int primary key, a int, s int generated always as (a / 10) stored)")
        attach(connection, "t", entity_type="t", id_column="s", columns=("s",), per_row=per_row)
        assert written(connection, "insert into t values (1, 10)") == ["1"]
        assert written(connection, "update t set a = 11") == []
        assert written(connection, "update t set a = 20") == ["1", "2"]

    @pytest.mark.parametrize("named", ["id_column", "whole row"])
    def test_a_virtual_generated_column_is_refused(self, connection: Connection, named: str) -> None:
        if connection.info.server_version < 180000:
            connection.execute("create table t (id int primary key)")
            return
        connection.execute("create table t (id int primary key, a int, v int generated always as (a / 10) virtual)")
        wanted: dict[str, dict[str, Any]] = {
            "id_column": {"id_column": "v"},
            "whole row": {"via": "select md5(changed::text)"},
        }
        with pytest.raises(CannotAttach, match="virtual generated column"):
            attach(connection, "t", entity_type="t", **wanted[named])
        attach(connection, "t", entity_type="t", via="select changed.id", columns=("a",))
        assert written(connection, "insert into t values (1, 10)", "update t set a = 20") == ["1", "1"]

    def test_tables_attached_to_each_other_do_not_cycle(self, shop: Connection) -> None:
        own(shop)
        via(shop)
        attach(shop, "articles", entity_type="author", id_column="author_id")
        attach(shop, "authors", entity_type="author", id_column="id")
        shop.execute(
            "create function touch() returns trigger language plpgsql as $$ begin"
            " update authors set name = name where id = 1; return null; end $$;"
            "create trigger touch after update on articles for each statement execute function touch()"
        )
        assert written(shop, "update articles set title = 'c' where id = 20") == ["1", "10", "11", "2", "20"]


def left_behind(conn: Connection) -> list[str]:
    rows = conn.execute(
        "select proname from pg_proc where proname like 'search\\_outbox\\_capture%' union all"
        " select tgname from pg_trigger where tgname like 'search\\_outbox\\_capture%' union all"
        " select relname from pg_class where relname like 'search\\_outbox\\_via%'"
    )
    return [name for (name,) in rows.fetchall()]


class TestWays:
    def test_one_table_is_attached_in_several_ways_each_renewed_by_itself(self, shop: Connection) -> None:
        for _ in range(2):
            own(shop)
            attach(shop, "articles", entity_type="author", id_column="author_id")
            attach(shop, "articles", entity_type="author", via="select changed.id + 1000")
        assert [each.way[:2] for each in attachments(shop)] == [
            ("article", "id"),
            ("author", "author_id"),
            ("author", None),
        ]
        assert written(shop, "update articles set title = 'x' where id = 20") == ["1020", "2", "20"]
        detach(shop, "articles", entity_type="author")
        assert written(shop, "update articles set title = 'x' where id = 20") == ["20"]
        with pytest.raises(NotAttached, match=r"public\.articles as author"):
            detach(shop, "articles", entity_type="author")
        detach(shop, "articles")
        assert left_behind(shop) == []


# As release 0.1.0 installed `outbox attach articles --type article --id id --payload`; the body is shortened.
OLDER = """
create function search_outbox_capture_articles_article_0379b575() returns trigger language plpgsql as $capture$
begin
    insert into public.search_outbox_events (entity_type, entity_id, op, event_version, payload)
    values ('article', coalesce(new.id, old.id), case tg_op when 'DELETE' then 'delete' else 'upsert' end,
            nextval('public.search_outbox_version'), case tg_op when 'DELETE' then null else to_json(new) end);
    return null;
end
$capture$;
create trigger search_outbox_capture_article_63313ce2_row after insert or update or delete on articles
    for each row execute function search_outbox_capture_articles_article_0379b575(
        '{"type": "article", "id": "id", "payload": true, "per_row": true}');
alter table articles enable always trigger search_outbox_capture_article_63313ce2_row;
"""


class TestRowsAsDocuments:
    def run(self, conn: Connection, table: str = "articles", **how: Any) -> str:
        """Attach; or run what it prints instead."""
        with pytest.raises(CannotAttach) as refused:
            attach(conn, table, rows=True, **how)
        assert left_behind(conn) == []
        return refused.value.problems[0].partition("\n")[2]

    def test_it_prints_the_view_first_and_attaches_once_that_is_there(self, shop: Connection) -> None:
        how: dict[str, Any] = {"entity_type": "article", "id_column": "id"}
        printed = self.run(shop, **how)
        assert printed == (
            """create view "search_documents" as select 'article'::text as "entity_type", "t"."id" as "entity_id","""
            """ to_json(t) as "document" from "public"."articles" as t;"""
        )
        shop.execute(printed.encode())
        assert attach(shop, "articles", rows=True, **how).notes == ()
        row = shop.execute("select entity_id, document ->> 'title' from search_documents limit 1").fetchone()
        assert row == (10, "x")


class TestMaterialisedView:
    def test_it_is_refused_with_the_remedy(self, shop: Connection) -> None:
        shop.execute(ROUTED_VIEW.replace("create view", "create materialized view"))
        with pytest.raises(CannotAttach, match=r"is a materialised view.*Make it an ordinary view, or a table"):
            own(shop)
        assert left_behind(shop) == []


QUERIES = [
    ("", "--via is empty"),
    ("select changed.id;", "Give one SELECT|one SELECT over"),
    ("select 1; drop table articles", "not one query: cannot insert multiple commands"),
    ("with gone as (delete from articles returning id) select id from gone", "data-modifying"),
    ("select id, title from articles", r"returns 2 columns \(id, title\)"),
    ("select id from articles where random() < 2", r"calls random\(\), which is volatile"),
    ("select sneaky(changed.id)", r"calls sneaky\(integer\).*declare it STABLE"),
    ("select id from articles tablesample bernoulli (50)", "random sample"),
    ("select id from articles for update", "locks rows"),
    ("select uuid from uuids", "returns uuid, and ids of search_documents are integer"),
]
COLUMNS: list[tuple[str, dict[str, Any], str]] = [
    ("nothing", {"id_column": "id"}, "no table nothing"),
    ("authors", {"id_column": "id", "columns": ("name", "x", "y")}, "(?s)has no column x.*has no column y"),
    ("authors", {"id_column": "notes"}, "type json, whose text.*Use --via"),
    ("uuids", {"id_column": "uuid"}, "column uuid is uuid, and ids of search_documents are integer"),
    ("authors", {}, "one of --id COLUMN and --via QUERY"),
    ("authors", {"id_column": "id", "entity_type": "a:b"}, "has a colon"),
    ("authors", {"via": VIA, "entity_type": "x", "rows": True}, "Give --id COLUMN instead of --via"),
    ("scratch", {"id_column": "id"}, "temporary or unlogged"),
    ("search_outbox_events", {"id_column": "id"}, "belongs to the outbox itself"),
    ("authors", {"via": "select md5(changed::text)", "columns": ("name",)}, "so every column counts"),
]


@pytest.fixture(scope="module")
def bad(postgres_url: str, migrated_template: str) -> Iterator[Connection]:
    """One database for all of these: nothing is changed, which is what they show."""
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as conn:
        conn.execute(TABLES)
        conn.execute(ROUTED_VIEW)
        conn.execute("create view guessed as select id from articles where random() < 2")
        conn.execute("create function sneaky(int) returns int language sql as 'select $1'")
        conn.execute("create unlogged table scratch (id int); create temp table fleeting (id int)")
        conn.execute("create table uuids (uuid uuid, at timestamptz)")
        yield conn


class TestBadInput:
    @pytest.mark.parametrize(("query", "complaint"), QUERIES)
    def test_a_query_that_cannot_serve_is_refused(self, bad: Connection, query: str, complaint: str) -> None:
        with pytest.raises(CannotAttach, match=complaint) as refused:
            attach(bad, "authors", entity_type="article", via=query, view="search_documents")
        assert refused.value.exit_code == 2
        assert left_behind(bad) == []

    @pytest.mark.parametrize(("table", "wanted", "complaint"), COLUMNS)
    def test_what_cannot_be_attached_is_refused_with_the_reason(
        self, bad: Connection, table: str, wanted: dict[str, Any], complaint: str
    ) -> None:
        with pytest.raises(CannotAttach, match=complaint):
            attach(bad, table, **{"entity_type": "article", "view": "search_documents", **wanted})
        assert left_behind(bad) == []


@pytest.fixture(scope="module")
def logical_server() -> Iterator[str]:
    """A server of its own: wal_level = logical would cost every other test."""
    with EmbeddedPostgres.temporary(settings={**POSTGRES_SETTINGS, "wal_level": "logical"}) as server:
        yield server.url


def test_rows_that_logical_replication_brings_refresh_by_row_triggers(logical_server: str) -> None:
    urls = [with_database(logical_server, name) for name in ("source", "copy")]
    for name, url in zip(("source", "copy"), urls, strict=True):
        admin(logical_server, sql.SQL("create database {}").format(sql.Identifier(name)))
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("create table articles (id int primary key, title text, other int)")
    migrate(urls[1])
    with psycopg.connect(urls[0], autocommit=True) as source, psycopg.connect(urls[1], autocommit=True) as copy:
        attach(copy, "articles", entity_type="article", id_column="id", columns=("title",), per_row=True)
        source.execute("create publication p for table articles")
        source.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
        copy.execute(
            sql.SQL(
                "create subscription s connection {} publication p with (create_slot = false, copy_data = false)"
            ).format(sql.Literal(urls[0]))
        )
        try:
            source.execute("insert into articles values (1), (2)")
            source.execute("update articles set title = 'x' where id = 1")
            source.execute("update articles set other = 1")
            source.execute("delete from articles where id = 2")
            source.execute("insert into articles values (3)")
            seen: list[str] = []
            eventually(lambda: seen.extend(written(copy)) or "3" in seen)
            assert sorted(seen) == ["1", "1", "2", "2", "3"]
            done = attach(copy, "articles", entity_type="story", id_column="id")
            assert "logical replication fires no statement triggers" in done.notes[0]
        finally:
            copy.execute("alter subscription s disable; alter subscription s set (slot_name = none)")
            copy.execute("drop subscription s")
            drop_slot(urls[0], "s")


@dataclass(frozen=True)
class Seen:
    """The doctor's check of attachments alone; Elasticsearch is not needed."""

    conn: Connection

    def attachments(self) -> list[AttachmentFacts]:
        with self.conn.transaction():
            self.conn.execute("set transaction read only")
            return installed.read_facts(self.conn, "search_documents")

    def found(self) -> list[tuple[Level, str, str]]:
        return [(each.level, each.detail, each.remedy) for each in attachment_findings.attached(self.attachments())]


class TestDoctor:
    @pytest.mark.parametrize(
        ("spoil", "level", "detail", "remedy"),
        [
            (OLDER, Level.WARN, "by release 0.1.0 with --payload", "outbox detach public.articles"),
            ("alter table authors disable trigger all", Level.BAD, "disabled: search_outbox_capture_article", "--via"),
            (
                "alter table authors enable trigger user",
                Level.WARN,
                "not ENABLE ALWAYS",
                "outbox attach public.authors",
            ),
            ("alter table authors rename id to key", Level.BAD, "does not plan any more", "new query"),
            ("alter table articles rename to stories", Level.BAD, 'relation "articles" does not exist', "new query"),
            ("alter table comments rename article_id to a", Level.BAD, "are gone: article_id", "outbox detach"),
            ("drop trigger search_outbox_no_truncate on comments", Level.WARN, "TRUNCATE would leave", "outbox attach"),
            ("create table base (); alter table comments inherit base", Level.BAD, "statement triggers miss", "attach"),
            (
                SCANNING,
                Level.WARN,
                "articles (about 20004 rows). Plan: Hash Join; Hash Cond: (articles.author_id = changed.id); Seq Scan",
                "Add an index",
            ),
            (ROUTED_VIEW.replace("'article'", "'story'"), Level.WARN, "no document of type article", "to the view"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_remedy(
        self, shop: Connection, spoil: str, level: Level, detail: str, remedy: str
    ) -> None:
        shop.execute("create index by_author on articles (author_id)")
        child(shop)
        via(shop)
        shop.execute(spoil.encode())
        wrong = [found for found in Seen(shop).found() if found[0] is not Level.OK]
        assert any(each[0] is level and detail in each[1] and remedy in each[2] for each in wrong), wrong
