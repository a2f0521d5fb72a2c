"""Is the index right? Real PostgreSQL and Elasticsearch, with every way in which they can come apart."""

from typing import Any

import pytest
from elasticsearch import Elasticsearch

from outbox.policy.drift import Kind
from outbox.reindex.tables import PostgresVerifications
from outbox.reindex.verify import Verification, VerifyOptions
from tests.fixtures.elasticsearch import delete_matching
from tests.fixtures.queue import EventTable
from tests.fixtures.world import World

pytestmark = pytest.mark.usefixtures("quick_second_checks")

SHARDS = 3  # a comparison reads all of them


@pytest.fixture(params=[True, False], ids=["view", "events"])
def world(request: pytest.FixtureRequest, queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> World:
    return World(queue, es, elastic_url, index, view=request.param)


@pytest.fixture
def with_view(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> World:
    return World(queue, es, elastic_url, index)


def verified(world: World, **wish: object) -> Verification:
    return world.reindexing().verify.run(VerifyOptions(rate=0, **wish))  # type: ignore[arg-type]


def found(result: Verification) -> dict[str, set[str]]:
    return {kind.value: {f.id for f in result.report.first[kind]} for kind in Kind if result.report.counts[kind]}


def test_what_was_projected_shows_no_drift(world: World) -> None:
    world.fill(1200)
    world.remove("7")
    world.put("8", "changed")
    world.project()
    result = verified(world)
    assert found(result) == {}
    assert result.report.compared == 1199
    assert result.report.conclusive
    assert result.sentence.startswith(f"No drift in {world.index}; 1,199 entities compared")


def test_each_change_by_hand_is_found_and_named(world: World) -> None:
    world.fill(20)
    for _ in range(2):
        world.put("4", "newer")
    world.remove("6")
    world.project()
    world.es.delete(index=world.index, id="article:1")
    world.es.index(index=world.index, id="article:2", document={"title": "by hand", "n": 2})
    world.es.index(index=world.index, id="article:6", document={"title": "back again"})
    world.put_older("article:4", {"title": "old"})
    result = verified(world)
    named = {"missing": {"article:1"}, "different": {"article:2"}, "orphaned": {"article:6"}}
    if world.view:  # versions say nothing there
        named["different"].add("article:4")
    else:
        named["stale"] = {"article:4"}
    assert found(result) == named
    fields = {finding.id: finding.fields for finding in result.report.first[Kind.DIFFERENT]}
    assert fields["article:2"] == ("title",)


def test_a_document_added_by_hand_is_an_orphan_for_the_view_and_unknown_for_events(world: World) -> None:
    world.fill(3)
    world.project()
    world.es.index(index=world.index, id="article:99", document={"title": "by hand"})
    kind = "orphaned" if world.view else "unknown"
    assert found(verified(world)) == {kind: {"article:99"}}


def test_numbers_are_compared_by_value_and_to_the_last_digit(with_view: World) -> None:
    world = with_view
    big = "12345678901234567890"
    world.es.indices.put_mapping(index=world.index, properties={"n": {"type": "keyword"}})
    world.put("1", n="1.10")
    world.put("2", n=big)
    world.project()
    assert found(verified(world)) == {}
    for id, body in (("1", b'{"n" : 11e-1, "title": "x"}'), ("2", b'{"title":"x","n":12345678901234567891}')):
        version = world.version(f"article:{id}")
        path = f"/{world.index}/_doc/article:{id}?version={version}&version_type=external_gte"
        world.elastic.call("PUT", path, body)
    result = verified(world)
    assert found(result) == {"different": {"article:2"}}
    assert result.report.first[Kind.DIFFERENT][0].fields == ("n",)


def test_what_waits_in_the_queue_is_in_flux_and_not_drift(with_view: World) -> None:
    world = with_view
    world.fill(5)
    world.project()
    world.put("1", "newer")
    world.put("6", "new")
    world.remove("2")
    result = verified(world)
    assert found(result) == {}
    assert result.report.in_flux == 3
    assert "outbox wait --caught-up" in result.sentence
    world.project()
    assert verified(world).report.conclusive


def test_drift_behind_a_failed_event_says_so(world: World) -> None:
    world.es.indices.put_mapping(index=world.index, properties={"n": {"type": "integer"}})
    world.fill(3)
    world.project()
    world.put("2", n="99999999999")
    world.project()
    assert world.queue.counts()["failed"] == 1
    result = verified(world)
    kind = Kind.DIFFERENT if world.view else Kind.STALE
    assert found(result) == {kind.value: {"article:2"}}
    assert result.report.first[kind][0].failed
    assert "1 of them have a failed event" in result.sentence


def test_routed_documents_are_found_and_a_second_one_is_an_orphan(
    queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str
) -> None:
    es.indices.create(index=absent_index, settings={"number_of_shards": 4, "number_of_replicas": 0})
    world = World(queue, es, elastic_url, absent_index)
    for n in range(8):
        world.put(str(n), routing=f"r{n}")
    world.put("plain")
    world.project()
    assert found(verified(world)) == {}
    # The same id under another routing is another document, on another shard: one too many.
    other: dict[str, Any] = {
        "index": absent_index,
        "id": "article:1",
        "version": 0,
        "version_type": "external_gte",
        "document": {},
    }
    lost = next(r for r in "abcdefgh" if not es.exists(index=absent_index, id="article:1", routing=r))
    es.index(**other, routing=lost)
    result = verified(world)
    assert found(result) == {"orphaned": {"article:1"}}
    assert result.report.first[Kind.ORPHANED][0].routing == lost


@pytest.mark.parametrize(
    ("type_name", "make", "strange"),
    [
        ("bigint", "g", ["x", "99999999999999999999", "-", "007", "+7"]),
        ("uuid", "md5(g::text)::uuid", ["x", "00000000-0000-4000-8000-00000", "C4CA4238A0B923820DCC509A6F75849B"]),
        ('text collate "C"', "'é' || chr(33 + g % 90) || g", []),
    ],
    ids=["bigint", "uuid", "text"],
)
def test_every_entity_is_met_once_whatever_the_type_of_its_id(
    queue: EventTable,
    es: Elasticsearch,
    elastic_url: str,
    index: str,
    monkeypatch: pytest.MonkeyPatch,
    type_name: str,
    make: str,
    strange: list[str],
) -> None:
    """Ids are walked in the order of their own type: as text, 10 would come before 9 and pages would leave holes."""
    monkeypatch.setattr(World, "_prepare", lambda self: None)
    queue.connection.execute(
        f"create table things (id {type_name} primary key);"
        f"insert into things select ({make}) from generate_series(1, 1700) g;"
        "create view search_documents as select 'thing'::text as entity_type, id as entity_id,"
        " json_build_object('id', id) as document, 1::bigint as version from things;"
        "insert into search_outbox_events (entity_type, entity_id, op)"
        " select 'thing', id::text, 'upsert' from things".encode()
    )
    world = World(queue, es, elastic_url, index)
    world.project()
    for id in strange:
        es.index(index=index, id=f"thing:{id}", document={})
    es.delete(index=index, id=f"thing:{queue.value('select max(id::text) from things')}")
    result = verified(world)
    assert result.report.compared == 1700
    assert result.report.counts[Kind.MISSING] == 1
    assert found(result).get("orphaned", set()) == {f"thing:{id}" for id in strange}


def test_large_documents_are_compared_one_at_a_time(with_view: World) -> None:
    world = with_view
    world.put("1", "x" * 200_000)
    world.put("2", "y" * 70_000)
    world.project()
    assert found(verified(world)) == {}
    world.es.index(index=world.index, id="article:1", document={"title": "x" * 199_999, "n": 1})
    assert found(verified(world)) == {"different": {"article:1"}}


def test_one_type_alone_is_compared_and_other_documents_left_out(
    queue: EventTable, es: Elasticsearch, elastic_url: str, index: str
) -> None:
    world = World(queue, es, elastic_url, index, view=False)
    world.fill(4)
    queue.produce("1", entity_type="comment", payload='{"c": 1}')
    world.project()
    for id in ("article:1", "comment:1"):
        es.delete(index=index, id=id)
    assert found(verified(world, entity_type="comment")) == {"missing": {"comment:1"}}
    assert found(verified(world)) == {"missing": {"article:1", "comment:1"}}


def test_types_that_the_view_lacks_are_read_from_events_where_the_index_is(with_view: World) -> None:
    from outbox.store.schema.migrate import migrate

    world = with_view
    world.fill(2)
    world.queue.produce("1", entity_type="comment", payload='{"c": 1}')
    world.project()
    result = verified(world)
    assert found(result) == {"unknown": {"comment:1"}}
    assert "--by-entity" in result.sentence
    migrate(world.queue.url, by_entity=True)
    assert found(verified(world)) == {}
    world.es.delete(index=world.index, id="comment:1")
    assert found(verified(world)) == {"missing": {"comment:1"}}


def test_an_index_without_sources_is_compared_by_versions(with_view: World, absent_index: str) -> None:
    world = with_view
    world.fill(3)
    world.project()
    world.es.indices.create(index=absent_index, mappings={"_source": {"enabled": False}})
    for n in range(1, 4):
        version = world.version(f"article:{n}")
        world.es.index(index=absent_index, id=f"article:{n}", document={}, version=version, version_type="external_gte")
    result = verified(world, index=absent_index)
    assert found(result) == {}
    assert result.report.without_source == 3


# Bad input


def test_a_view_that_errors_on_one_row_leaves_the_others_compared(with_view: World) -> None:
    world = with_view
    world.fill(30)
    world.project()
    world.connection.execute(
        b"create or replace view search_documents as select 'article'::text as entity_type, id as entity_id,"
        b" case when 1 / (n::int - 7) > 5 then null else json_build_object('title', title, 'n', n) end as document,"
        b" version from articles"
    )
    world.es.delete(index=world.index, id="article:9")
    result = verified(world)
    assert found(result) == {"missing": {"article:9"}}
    assert [row["entity_id"] for row in result.report.first_unreadable] == ["7"]
    assert "SQLSTATE 22012" in result.report.first_unreadable[0]["why"]
    assert not result.report.conclusive


# A sample, and what is kept


def test_a_sample_of_an_index_that_lost_half_finds_missing_documents(with_view: World) -> None:
    world = with_view
    world.fill(300)
    world.project()
    world.es.indices.refresh(index=world.index)
    delete_matching(world.es, world.index, {"range": {"n": {"gt": 150}}})
    assert verified(world, sample=100).report.counts[Kind.MISSING] > 0


def test_a_comparison_that_was_killed_is_not_under_way_for_ever(with_view: World) -> None:
    world = with_view
    verified(world)
    world.connection.execute(
        "update search_outbox_verifications"
        " set status = 'running', finished_at = null, updated_at = now() - interval '2 minutes'"
    )
    last = world.reindexing().verify.log.lately(20)[0]
    assert (last["status"], last["error"]) == ("failed", "it ended without a word")


def test_what_compared_a_part_or_elsewhere_is_not_the_metrics_result(with_view: World, absent_index: str) -> None:
    world = with_view
    world.fill(5)
    world.project()
    world.es.delete(index=world.index, id="article:1")
    world.es.indices.create(index=absent_index)
    whole = verified(world)
    verified(world, entity_type="comment")
    verified(world, index=absent_index)
    last = PostgresVerifications(world.queue.pool("news")).last_finished(world.settings.elastic.targets)
    assert last is not None
    assert last.id == whole.id
    assert last.drift["missing"] == 1
