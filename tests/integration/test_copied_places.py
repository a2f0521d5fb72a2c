"""Documents whose routing comes from a joined table: repair, backfill and rebuild find them wherever they were. Five
shards, real servers."""

import pytest
from elasticsearch import Elasticsearch

from outbox.policy.drift import Kind
from outbox.reindex.verify import VerifyOptions
from tests.fixtures.queue import EventTable
from tests.fixtures.rebuilding import ALICE, RebuildWorld
from tests.fixtures.world import World

pytestmark = pytest.mark.usefixtures("quick_second_checks")

TABLES = """
create table authors (id int primary key, tenant text not null, banned boolean not null default false);
create table articles (id bigint primary key, author_id int not null references authors, title text not null);
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id, json_build_object('title', a.title) as document,
           b.tenant as routing
      from articles a join authors b on b.id = a.author_id where not b.banned;
insert into authors values (1, 'one'), (2, 'two'), (3, 'three');
insert into articles select g, 1 + g % 2, 'title ' || g from generate_series(1, 40) g;
insert into search_outbox_events (entity_type, entity_id, op) select 'article', id::text, 'refresh' from articles
"""


class Tenants(RebuildWorld):
    """Twenty articles each of the authors 1 and 2."""

    def _prepare(self) -> None:
        self.connection.execute(TABLES.encode())


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str) -> Tenants:
    """As an earlier release left it: nobody has noted any place."""
    world = Tenants(queue, es, elastic_url, absent_index)
    es.indices.delete(index=f"{absent_index}-v1")
    settings = {"number_of_shards": 5, "number_of_replicas": 0}
    es.indices.create(index=f"{absent_index}-v1", settings=settings, aliases={absent_index: {}})
    world.project()
    world.connection.execute("delete from search_outbox_places")
    return world


def places_of(world: World, index: str | None = None) -> dict[str, list[str]]:
    """Where each document is found, by id."""
    world.es.indices.refresh(index=index or world.index)
    found: dict[str, list[str]] = {}
    for hit in world.es.search(index=index or world.index, size=1000)["hits"]["hits"]:
        found.setdefault(hit["_id"], []).append(hit.get("_routing", ""))
    return found


def put_second(world: World, id: str, version: int) -> None:
    """A second document of one id, under a routing of another shard."""
    other = next(r for r in "abcdefgh" if not world.es.exists(index=world.index, id=id, routing=r))
    world.es.index(index=world.index, id=id, routing=other, document={}, version=version, version_type="external")


def expected(world: World) -> dict[str, list[str]]:
    rows = world.connection.execute("select entity_id, routing from search_documents").fetchall()
    return {f"article:{id}": [routing] for id, routing in rows}


def test_a_banned_author_and_a_moved_article_are_found_by_verify_and_removed_by_repair(world: Tenants) -> None:
    world.connection.execute("update authors set banned = true where id = 2")
    world.connection.execute("update articles set author_id = 3 where id = 2")
    for id in ("article:1", "article:4"):  # one that is gone and one that is there
        put_second(world, id, 1)
    desk = world.reindexing().repair
    plan = desk.plan(VerifyOptions(rate=0), 1000)
    assert (plan.by_kind[Kind.ORPHANED], plan.by_kind[Kind.DIFFERENT]) == (21, 1)
    desk.write(plan, ALICE, "why", rate=0, expect_deletes=21)
    world.project()
    assert places_of(world) == expected(world)
    assert world.queue.counts().keys() == {"done"}
    assert world.reindexing().verify.run(VerifyOptions(rate=0)).report.conclusive


@pytest.mark.parametrize("version", [None, 10**9], ids=["known", "ahead"])
def test_a_backfill_first_notes_where_the_index_holds_documents(world: Tenants, version: int | None) -> None:
    """So what moved before there were places is removed from where it was; a version ahead moves the sequence first."""
    world.connection.execute("update articles set author_id = 3 where id % 2 = 1")
    if version is not None:
        world.es.index(
            index=world.index, id="article:2", routing="two", document={}, version=version, version_type="external"
        )
    desk = world.reindexing().backfill
    done = desk.run(desk.start((), ALICE, "why"), ALICE, 0.0)
    assert (done.written, done.refused) == (40, 0)
    assert places_of(world) == expected(world)
    assert world.queue.value("select count(*) from search_outbox_places where cleared_at is null") == 40


def test_a_backfill_reports_what_it_cannot_follow(world: Tenants) -> None:
    put_second(world, "article:2", 2**62 + 1)
    desk = world.reindexing().backfill
    done = desk.run(desk.start((), ALICE, "why"), ALICE, 0.0)
    assert (done.written, done.refused) == (40, 1)
    assert "outbox rebuild" in (done.refusals or [{}])[0]["error"]


def test_a_rebuild_puts_each_document_in_one_place_and_forgets_none_that_the_old_index_has(world: Tenants) -> None:
    world.connection.execute("update articles set author_id = 3 where id % 2 = 1")
    world.connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op)"
        " select 'article', id::text, 'refresh' from articles where id = 1"
    )
    world.connection.execute(
        "insert into search_outbox_places (entity_type, entity_id, routing, drawn)"
        " select 'article', id::text, 'two', 1 from articles where id % 2 = 1"
    )
    ready = world.start()
    assert places_of(world, ready.new_index) == expected(world)
    assert world.queue.value("select count(*) from search_outbox_places where cleared_at is not null") == 0
