"""Nothing that the view reads is forgotten in silence: doctor, run and status name what no attachment covers."""

from typing import Any

import psycopg
import pytest

from outbox.app.desk import QueueDesk
from outbox.daemon.upkeep import UNATTACHED_SECONDS, News, Rarely
from outbox.errors import NotFound
from outbox.facts import Fact, Warned
from outbox.policy.audit import Actor, Source
from outbox.ports import Finding, Level
from outbox.store import coverage as coverage_module
from outbox.store.attach import from_view
from outbox.store.coverage import PostgresCoverage
from outbox.store.pool import Database
from tests.fixtures.desks import Examine
from tests.fixtures.events import Time

Connection = psycopg.Connection[Any]

ALICE = Actor("alice", Source.CLI)
TABLES = """
create table authors (id bigint primary key, name text, born date);
create table articles (id bigint primary key, author_id bigint, title text, views int default 0);
create view written as select a.id, a.title, b.name from articles a join authors b on b.id = a.author_id;
create view search_documents as
select 'article'::text as entity_type, w.id as entity_id, json_build_object('title', w.title, 'by', w.name) as document
  from written as w
"""
DECLARED = "insert into search_outbox_entity_types (entity_type, kept_by, declared_by) values ('article', %s, 'test')"


@pytest.fixture
def viewed(connection: Connection) -> Connection:
    """Articles and authors behind two views; the view keeps their documents, and nothing is attached."""
    connection.execute(TABLES.encode())
    connection.execute(DECLARED.encode(), ["view"])
    return connection


@pytest.fixture
def coverage(pool: Database, viewed: Connection) -> PostgresCoverage:
    return PostgresCoverage(pool, "search_documents")


BY_HAND = "select id from articles where author_id = changed.id"


def attach(connection: Connection, table: str, *watched: str, closed: bool = False, kind: str = "article") -> None:
    """By its id, or where the id is no article's by a query of somebody's own."""
    via = BY_HAND if (table, kind) == ("authors", "article") else None
    connection.execute(
        "insert into search_outbox_attachments (id, source, named, entity_type, id_column, via, watched, per_row, path,"
        " function, closed_at) values ((select count(*) from search_outbox_attachments), %s::text::regclass, %s, %s,"
        " %s, %s, %s, false, '{public}', 'f', %s)",
        [table, table, kind, None if via else "id", via, list(watched), "2026-01-01" if closed else None],
    )


def replace_view(connection: Connection, document: str, source: str = "articles as a") -> None:
    connection.execute("drop view if exists search_documents")
    selected = f"select 'article'::text as entity_type, a.id as entity_id, {document} as document from {source}"
    connection.execute(f"create view search_documents as {selected}".encode())


def covered(findings: dict[str, list[Finding]]) -> Finding:
    (finding,) = findings["covered"]
    return finding


def test_a_table_that_nobody_attached_is_bad_with_the_commands_that_help(examine: Examine, viewed: Connection) -> None:
    found = covered(examine())
    assert (found.level, found.detail) == (
        Level.BAD,
        "search_documents reads what no attachment covers: public.articles, public.authors",
    )
    assert "outbox attach --from-view" in found.remedy
    assert "outbox attach --ignore TABLE --reason WHY" in found.remedy


def test_what_an_open_attachment_watches_is_covered_and_a_closed_one_covers_nothing(
    coverage: PostgresCoverage, viewed: Connection
) -> None:
    attach(viewed, "articles", "id", "title", "author_id")
    assert coverage.forgotten() == ["public.authors"]
    attach(viewed, "authors", closed=True)
    assert coverage.forgotten() == ["public.authors"]
    attach(viewed, "authors", "id")
    assert coverage.forgotten() == ["public.authors (name)"]
    attach(viewed, "authors", "name")
    assert coverage.forgotten() == []


TWO_TYPES = """
create or replace view search_documents as
select 'article'::text as entity_type, a.id as entity_id, json_build_object('title', a.title, 'by', b.name) as document
  from articles as a join authors as b on b.id = a.author_id
 union all
select 'author', b.id, json_build_object('name', b.name, 'born', b.born) from authors as b
"""


def test_a_table_that_is_attached_for_one_type_is_forgotten_for_another(
    viewed: Connection, coverage: PostgresCoverage
) -> None:
    viewed.execute(TWO_TYPES.encode())
    attach(viewed, "articles")
    attach(viewed, "authors", kind="author")
    assert coverage.forgotten() == ["public.authors as article"]
    attach(viewed, "authors", "born")
    assert coverage.forgotten() == ["public.authors as article (id, name)"]
    attach(viewed, "authors", "id", "name")
    assert coverage.forgotten() == []


def test_what_the_view_needs_is_derived_anew_when_its_query_or_a_column_is_another(
    viewed: Connection, coverage: PostgresCoverage, monkeypatch: pytest.MonkeyPatch
) -> None:
    derivations: list[str] = []
    derive = from_view.derived
    monkeypatch.setattr(coverage_module, "derived", lambda conn, view: derivations.append(view) or derive(conn, view))
    attach(viewed, "articles")
    attach(viewed, "authors")
    for _ in range(3):
        assert coverage.forgotten() == []
    assert len(derivations) == 1
    viewed.execute(TWO_TYPES.encode())
    assert coverage.forgotten() == ["public.authors as author"]
    assert len(derivations) == 2
    viewed.execute("alter table authors alter name set not null")
    coverage.forgotten()
    assert len(derivations) == 3


def test_a_whole_row_counts_as_every_column_also_beside_columns_that_are_named(
    coverage: PostgresCoverage, viewed: Connection
) -> None:
    attach(viewed, "articles", "id", "title")
    replace_view(viewed, "to_json(a)")
    assert coverage.forgotten() == ["public.articles (author_id, views)"]
    replace_view(viewed, "(select json_agg(b) from authors as b where b.id = a.id)")
    assert coverage.forgotten() == ["public.authors"]


def test_an_attached_parent_covers_its_partitions_and_a_child_table_counts_for_itself(
    coverage: PostgresCoverage, viewed: Connection
) -> None:
    viewed.execute(
        "create table parted (id bigint, title text) partition by range (id);"
        "create table part_1 partition of parted for values from (0) to (9);"
        "create table parent (id bigint, title text); create table child (more text) inherits (parent)"
    )
    replace_view(viewed, "json_build_object('title', a.title)", "part_1 as a")
    attach(viewed, "parted", "id", "title")
    assert coverage.forgotten() == []
    replace_view(viewed, "json_build_object('title', a.title)", "parent as a")
    attach(viewed, "parent")
    assert coverage.forgotten() == ["public.child"]


def test_where_payloads_keep_every_type_nothing_is_forgotten_and_before_the_first_one_it_is_a_warning(
    examine: Examine, viewed: Connection
) -> None:
    viewed.execute("delete from search_outbox_entity_types")
    assert covered(examine()).level is Level.WARN
    viewed.execute(DECLARED.encode(), ["payload"])
    assert covered(examine()).level is Level.OK


def test_what_no_trigger_tells_of_is_named_until_somebody_says_that_he_knows(
    examine: Examine, desk: QueueDesk, viewed: Connection
) -> None:
    viewed.execute(
        "create materialized view totals as select count(*) as n from authors; create sequence s;"
        "create foreign data wrapper nowhere; create server remote foreign data wrapper nowhere;"
        "create foreign table rates (rate int) server remote"
    )
    replace_view(viewed, "json_build_object('n', (select n from totals), 'r', (select max(rate) from rates))")
    (found,) = examine()["documents"]
    assert found.level is Level.WARN
    assert "public.rates (foreign), public.totals (materialised)" in found.detail
    desk.ignored.ignore(["rates", "totals"], (), ALICE, "refreshed every night")
    (found,) = examine()["documents"]
    assert found.level is Level.OK


def test_an_exception_is_audited_shown_with_its_reason_and_taken_back(
    examine: Examine, desk: QueueDesk, viewed: Connection
) -> None:
    assert desk.ignored.ignore(["articles", "authors"], (), ALICE, "the application writes refreshes") == [
        "public.articles",
        "public.authors",
    ]
    found = examine()
    assert covered(found).level is Level.OK
    first, second = found["ignored"]
    assert first.level is Level.OK
    assert first.detail.startswith("public.articles: the application writes refreshes (alice, 20")
    assert second.detail.startswith("public.authors: ")
    assert desk.ignored.watch_again("authors", ALICE) == "the application writes refreshes"
    assert "public.authors" in covered(examine()).detail
    with pytest.raises(NotFound, match=r"public\.authors"):
        desk.ignored.watch_again("authors", ALICE)
    rows = viewed.execute("select action, actor, reason, detail ->> 'table' from search_outbox_audit order by id")
    why = "the application writes refreshes"
    assert rows.fetchall() == [
        ("TABLE_IGNORED", "alice", why, "public.articles"),
        ("TABLE_IGNORED", "alice", why, "public.authors"),
        ("TABLE_WATCHED_AGAIN", "alice", None, "public.authors"),
    ]


def test_an_exception_may_be_for_columns_alone(coverage: PostgresCoverage, desk: QueueDesk, viewed: Connection) -> None:
    replace_view(viewed, "to_json(a)")
    desk.ignored.ignore(["articles"], ["views"], ALICE, "counted every night")
    assert coverage.forgotten() == ["public.articles"]  # its new rows write no event
    attach(viewed, "articles", "id", "title")
    assert coverage.forgotten() == ["public.articles (author_id)"]


def test_a_running_projector_warns_at_its_start_and_once_per_hour(
    coverage: PostgresCoverage, viewed: Connection
) -> None:
    facts: list[Fact] = []
    clock = Time()
    news = News(facts.append)
    watch = Rarely(UNATTACHED_SECONDS, lambda: news.coverage("search_documents", coverage.forgotten), clock)
    for _ in range(2):
        watch.tend()
        watch.tend()
        clock.passes(UNATTACHED_SECONDS)
    assert [fact.event for fact in facts if isinstance(fact, Warned)] == ["view.unattached"] * 2
    assert "public.articles, public.authors" in str(facts[0])
    attach(viewed, "articles")
    attach(viewed, "authors")
    watch.tend()
    assert len(facts) == 2
