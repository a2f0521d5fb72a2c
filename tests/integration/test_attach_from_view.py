"""`outbox attach --from-view`: whatever changes in the tables of a view, every document that changes is refreshed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from outbox.ports import ViewPlan
from outbox.store.attach import from_view, installed
from outbox.store.attach.attach import attach
from outbox.store.coverage import read_coverage
from tests.fixtures.attachments import catalogue
from tests.fixtures.commands import Outbox
from tests.fixtures.touched import every_change
from tests.fixtures.view_schemas import SCHEMAS, ViewSchema

Connection = psycopg.Connection[Any]
VIEW = "search_documents"
each_schema = pytest.mark.parametrize("schema", SCHEMAS, ids=[each.remark for each in SCHEMAS])


@each_schema
def test_no_change_of_a_table_is_missed(connection: Connection, schema: ViewSchema) -> None:
    """Nor is anything that the view reads left uncovered: `outbox doctor` reads the catalogue in its own way."""
    connection.execute(schema.script.encode())
    assert read_coverage(connection, VIEW).read != []
    plan = from_view.attach_all(connection, VIEW)
    assert [each.shown for each in read_coverage(connection, VIEW).read if each.is_forgotten] == []
    print("\n".join(f"{each.result.attachment.table}: {each.result.attachment.shown}" for each in plan.attachments))
    seen = every_change(connection, schema.tables)
    assert seen.missed == []
    assert seen.effective > 4


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


class TestColumns:
    def test_an_update_of_a_column_that_is_not_read_writes_nothing(self, articles: Connection) -> None:
        articles.execute("insert into authors values (1, 'Ada'); insert into articles values (1, 1, 'x')")
        from_view.attach_all(articles, VIEW)
        assert columns(articles) == {"articles": ("id", "author_id", "title"), "authors": ("id", "name")}
        articles.execute("update articles set unread = 'u'; update authors set unread = 'u'")
        assert articles.execute("select count(*) from search_outbox_events").fetchone() == (0,)


def about_rights(notes: list[str]) -> list[str]:
    """Roles belong to the whole server: where another test has made the projector's, its rights are noted."""
    return [note for note in notes if "a projector that logs in as search_outbox_projector may not read" in note]


class TestTheCommand:
    def test_it_installs_all_and_says_what_to_run_next(self, articles: Connection, outbox: Outbox) -> None:
        articles.execute("insert into articles values (1, 1, 'x')")
        done = outbox("attach", "--from-view", "--yes")
        assert (done.code, done.err.splitlines()) == (0, about_rights(done.err.splitlines()))
        assert "attached: 2" in done.out
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
