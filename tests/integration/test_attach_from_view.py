"""`outbox attach --from-view`: whatever changes in the tables of a view, every document that changes is refreshed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from outbox.ports import ViewPlan
from outbox.store.attach import from_view, installed
from outbox.store.attach.attach import attach
from outbox.store.coverage import PostgresCoverage
from outbox.store.pool import Database
from outbox.store.schema.migrate import migrate
from outbox.store.schema.patience import TableBusy, in_transaction
from tests.fixtures.attachments import catalogue
from tests.fixtures.commands import Outbox
from tests.fixtures.postgres import fresh_database
from tests.fixtures.touched import every_change
from tests.fixtures.view_schemas import SCHEMAS, ViewSchema

Connection = psycopg.Connection[Any]
VIEW = "search_documents"
each_schema = pytest.mark.parametrize("schema", SCHEMAS, ids=[each.remark for each in SCHEMAS])


@each_schema
def test_no_change_of_a_table_is_missed(connection: Connection, pool: Database, schema: ViewSchema) -> None:
    """Nor is anything that the view reads left uncovered: `outbox doctor` reads the catalogue in its own way."""
    connection.execute(schema.script.encode())
    coverage = PostgresCoverage(pool, VIEW)
    assert coverage.read().read != []
    plan = from_view.attach_all(connection, VIEW)
    assert [each.shown for each in coverage.read().read if each.is_forgotten] == []
    print("\n".join(f"{each.result.attachment.table}: {each.result.attachment.shown}" for each in plan.attachments))
    seen = every_change(connection, schema.tables)
    assert seen.missed == []
    assert seen.effective > 4


@pytest.fixture(scope="module")
def older_database(older_postgres_url: str) -> Iterator[str]:
    """PostgreSQL 15 and 16 store queries a little otherwise: with OLD and NEW, without entries for GROUP BY."""
    with fresh_database(older_postgres_url) as url:
        migrate(url)
        yield url


@pytest.mark.release("the derivation is one for all servers; some views show how older ones store them", keep=3)
@each_schema
def test_older_servers_lead_to_the_same_attachments(
    connection: Connection, older_database: str, schema: ViewSchema
) -> None:
    connection.execute(schema.script.encode())
    here = from_view.plan(connection, VIEW)
    with psycopg.connect(older_database) as older:
        older.execute(schema.script.encode())
        there = from_view.plan(older, VIEW)
        older.rollback()
    assert here.problems == ()
    assert here.attachments
    assert shown(there) == shown(here)


def shown(plan: ViewPlan) -> list[Any]:
    return [(each.result.attachment, each.reason, each.state) for each in plan.attachments]


ARTICLES = """
create table authors (id int primary key, name text, unread text);
create table articles (id int primary key, author_id int, title text, unread text);
create table rates (factor int);
"""
AUTHORS = "authors as article via select articles.id from articles where articles.author_id = changed.id"


def make_view(connection: Connection, joined: str, document: str = "json_build_array(a.title, u.name)") -> None:
    connection.execute(
        f"create or replace view {VIEW} as select 'article' as entity_type, a.id as entity_id, {document} as document"
        f" from articles a {joined}".encode()
    )


@pytest.fixture
def articles(connection: Connection) -> Connection:
    connection.execute(ARTICLES)
    make_view(connection, "join authors u on u.id = a.author_id")
    return connection


def states(plan: ViewPlan) -> dict[str, str]:
    return {each.result.attachment.table.removeprefix("public."): each.state for each in plan.attachments}


def columns(connection: Connection) -> dict[str, tuple[str, ...]]:
    return {each.table.removeprefix("public."): each.columns for each in installed.attachments(connection)}


class TestAllOrNothing:
    def test_one_table_that_nothing_leads_from_stops_all(self, articles: Connection) -> None:
        make_view(articles, "join authors u on u.id = a.author_id cross join rates r")
        with pytest.raises(from_view.CannotDerive) as refused:
            from_view.attach_all(articles, VIEW)
        (problem,) = refused.value.problems
        assert problem.startswith("rates as article: no condition of the view")
        assert "outbox attach rates --type article --via 'select ...'" in problem
        assert 'outbox attach --ignore rates --reason "..."' in problem
        assert installed.attachments(articles) == []

    def test_what_is_attached_by_hand_stands_for_what_cannot_be_derived(self, articles: Connection) -> None:
        make_view(articles, "join authors u on u.id = a.author_id cross join rates r")
        attach(articles, "rates", entity_type="article", via="select id from articles")
        from_view.attach_all(articles, VIEW)
        assert columns(articles).keys() == {"articles", "authors", "rates"}

    def test_a_lock_that_is_not_had_leaves_nothing(
        self, articles: Connection, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        once = partial(in_transaction, lock_timeout_ms=50, try_for_seconds=0.1)
        monkeypatch.setattr("outbox.store.attach.attach.in_transaction", once)
        with psycopg.connect(database) as other:
            other.execute("lock table authors in row exclusive mode")
            with pytest.raises(TableBusy):
                from_view.attach_all(articles, VIEW)
        assert installed.attachments(articles) == []

    @pytest.mark.parametrize(
        ("made", "problem"),
        [
            ("select 1", "there is no view search_documents"),
            ("create table search_documents (id int)", "search_documents is no view. Attach it by itself"),
            ("create materialized view search_documents as select 1 as x", "search_documents is a materialised view"),
            ("create view search_documents as select 1 as entity_id", "search_documents lacks document, entity_type"),
        ],
    )
    def test_a_view_that_is_none_is_named(self, connection: Connection, made: str, problem: str) -> None:
        connection.execute(made.encode())
        (found,) = from_view.plan(connection, VIEW).problems
        assert found.startswith(problem)


class TestWhatIsThere:
    def test_the_same_again_changes_nothing(self, articles: Connection) -> None:
        from_view.attach_all(articles, VIEW)
        before = catalogue(articles)
        done = from_view.attach_all(articles, VIEW)
        assert states(done) == {"articles": "there", "authors": "there"}
        assert catalogue(articles) == before

    def test_columns_that_are_watched_become_more_never_less(self, articles: Connection) -> None:
        attach(articles, "articles", entity_type="article", id_column="id", columns=("unread",))
        attach(articles, "authors", entity_type="article", via=AUTHORS.partition(" via ")[2])
        done = from_view.attach_all(articles, VIEW)
        assert states(done) == {"articles": "renewed", "authors": "there"}
        assert columns(articles) == {"articles": ("unread", "id", "author_id", "title"), "authors": ()}

    def test_a_table_that_never_changes_needs_nothing(self, articles: Connection) -> None:
        """As `outbox attach --ignore` writes it; of some columns only where all that are read are among them."""
        articles.execute(
            "insert into search_outbox_ignored_tables (source, named, reason, ignored_by)"
            " values ('authors', 'x', 'y', 'z')"
        )
        for never, needed in (([], False), (["id", "name"], False), (["name"], True)):
            articles.execute("update search_outbox_ignored_tables set columns = %s", [never])
            there = {"articles": "new", "authors": "new"} if needed else {"articles": "new"}
            assert states(from_view.plan(articles, VIEW)) == there


class TestColumns:
    def test_an_update_of_a_column_that_is_not_read_writes_nothing(self, articles: Connection) -> None:
        articles.execute("insert into authors values (1, 'Ada'); insert into articles values (1, 1, 'x')")
        from_view.attach_all(articles, VIEW)
        assert columns(articles) == {"articles": ("id", "author_id", "title"), "authors": ("id", "name")}
        articles.execute("update articles set unread = 'u'; update authors set unread = 'u'")
        assert articles.execute("select count(*) from search_outbox_events").fetchone() == (0,)

    def test_a_whole_row_is_all_columns(self, articles: Connection) -> None:
        make_view(articles, "join authors u on u.id = a.author_id", "row_to_json(a)")
        from_view.attach_all(articles, VIEW)
        assert columns(articles) == {"articles": (), "authors": ("id",)}


def about_rights(notes: list[str]) -> list[str]:
    """Roles belong to the whole server: where another test has made the projector's, its rights are noted."""
    return [note for note in notes if "a projector that logs in as search_outbox_projector may not read" in note]


def test_the_script_does_what_the_command_does(articles: Connection, empty_database: str) -> None:
    migrate(empty_database)
    with psycopg.connect(empty_database, autocommit=True) as other:
        other.execute(ARTICLES)
        make_view(other, "join authors u on u.id = a.author_id")
        other.execute(from_view.plan(other, VIEW).script.encode())
        from_view.attach_all(articles, VIEW)
        assert [row[:3] for row in without_oids(catalogue(other))] == [
            row[:3] for row in without_oids(catalogue(articles))
        ]


def without_oids(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Names of functions have a hash over the table's oid."""
    shown = [tuple(re.sub(r"(capture_\w+?)_[0-9a-f]{8}", r"\1", text) for text in row) for row in rows]
    return sorted(row for row in shown if row[0] != "revision")


class TestTheCommand:
    def test_it_shows_a_reason_for_each_table_and_asks(self, articles: Connection, outbox: Outbox) -> None:
        shown = outbox("attach", "--from-view")
        assert shown.code == 2
        assert "give --yes" in shown.err
        assert re.search(
            r"public.articles +article +id +- +id, author_id, title +articles.id is its entity_id +new", shown.out
        )
        assert "articles.author_id = authors.id" in shown.out
        assert installed.attachments(articles) == []

    def test_a_dry_run_and_a_script_change_nothing(self, articles: Connection, outbox: Outbox) -> None:
        assert outbox("attach", "--from-view", "--dry-run").code == 0
        script = outbox("attach", "--from-view", "--sql")
        assert "-- Run this in one transaction" in script.out
        assert outbox("attach", "--from-view", "--dry-run", "--json").json["sql"] in script.out
        assert installed.attachments(articles) == []

    def test_it_installs_all_and_says_what_to_run_next(self, articles: Connection, outbox: Outbox) -> None:
        articles.execute("insert into articles values (1, 1, 'x')")
        done = outbox("attach", "--from-view", "--yes")
        assert (done.code, done.err.splitlines()) == (0, about_rights(done.err.splitlines()))
        assert ["attached", "2"] in [line.split() for line in done.out.splitlines()]
        assert "outbox backfill --type article" in done.out
        again = outbox("attach", "--from-view")
        assert (again.code, "everything that the view reads is attached" in again.err) == (0, True)
        assert {each["state"] for each in outbox("attach", "--from-view", "--json").json["attachments"]} == {"there"}

    def test_a_refusal_names_the_table_and_ends_with_2(self, articles: Connection, outbox: Outbox) -> None:
        make_view(articles, "join authors u on u.id = a.author_id cross join rates r")
        for words in (["--yes"], ["--dry-run"], ["--sql"]):
            done = outbox("attach", "--from-view", *words)
            assert (done.code, "rates as article: no condition" in done.err) == (2, True)
        assert outbox("attach", "--from-view", "--json", "--yes").json["problems"]
        assert installed.attachments(articles) == []

    @pytest.mark.parametrize(
        "words",
        [
            ["--from-view", "--type", "article"],
            ["articles"],
        ],
    )
    def test_options_that_do_not_fit_together_are_refused(self, outbox: Outbox, words: list[str]) -> None:
        done = outbox("attach", *words)
        assert done.code == 2
        assert "--from-view" in done.err
