"""Repair writes events for what differs and for nothing else, with versions that really fix. Real servers."""

import json
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from outbox.errors import UsageError
from outbox.policy.audit import Actor, Source
from outbox.reindex.repair import ManyDeletes, Repaired, RepairPlan
from outbox.reindex.verify import VerifyOptions
from tests.fixtures.queue import EventTable
from tests.fixtures.world import World

pytestmark = pytest.mark.usefixtures("quick_second_checks")

ALICE = Actor("alice", Source.CLI)

SHARDS = 3  # a comparison reads all of them


@pytest.fixture(params=[True, False], ids=["view", "events"])
def world(request: pytest.FixtureRequest, queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> World:
    return World(queue, es, elastic_url, index, view=request.param)


@pytest.fixture
def viewed(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> World:
    return World(queue, es, elastic_url, index)


def plan(world: World, limit: int = 1000, **wish: Any) -> RepairPlan:
    return world.reindexing().repair.plan(VerifyOptions(rate=0, **wish), limit)


def fixed(world: World, **more: Any) -> Repaired:
    repaired = world.reindexing().repair.write(plan(world), ALICE, "by hand", rate=0, **more)
    world.project()
    return repaired


def drift(world: World) -> int:
    return world.reindexing().verify.run(VerifyOptions(rate=0)).report.drift


def test_every_change_by_hand_is_repaired_by_one_event_each_and_audited(world: World) -> None:
    world.fill(20)
    world.put("4", "newer")
    world.remove("6")
    world.project()
    before = sum(world.queue.counts().values())
    world.es.delete(index=world.index, id="article:1")
    world.es.index(index=world.index, id="article:2", document={"title": "by hand", "n": 2})
    world.put_older("article:4", {"title": "old"})
    world.es.index(index=world.index, id="article:6", document={"title": "back again"})

    repaired = fixed(world)

    assert repaired.written == 4
    wrong = {"missing": 1, "different": 2, "orphaned": 1}
    if not world.view:
        wrong = {"missing": 1, "different": 1, "stale": 1, "orphaned": 1}
    assert repaired.by_kind == wrong
    assert sum(world.queue.counts().values()) == before + 4
    assert drift(world) == 0
    assert world.source("article:2") == {"title": "title 2", "n": 2}
    assert world.source("article:6") is None
    rows = world.connection.execute(
        "select actor, reason, batch_id, detail from search_outbox_audit where action = 'REPAIR_SUMMARY'"
    ).fetchall()
    assert [row[:3] for row in rows] == [("alice", "by hand", repaired.batch)]
    detail = rows[0][3] if isinstance(rows[0][3], dict) else json.loads(rows[0][3])
    assert detail["events"] == 4
    assert detail["by_kind"] == wrong
    named = "select count(*) from search_outbox_events where idempotency_key like %s"
    assert world.queue.value(named, f"repair:{repaired.batch}:%") == 4


def test_a_delete_by_hand_is_repaired_above_its_tombstone(world: World) -> None:
    """A delete without a version raises it by one, and the tombstone refuses what is below."""
    world.fill(2)
    world.project()
    version = world.version("article:1")
    assert version is not None
    for _ in range(3):
        world.es.index(index=world.index, id="article:1", document={"x": 1})
    world.es.delete(index=world.index, id="article:1")
    fixed(world)
    assert world.source("article:1") == {"title": "title 1", "n": 1}
    found = world.version("article:1")
    assert found is not None
    assert found > version
    assert drift(world) == 0


def test_an_edit_by_hand_repeated_many_times_is_repaired_at_elasticsearchs_version_or_above(world: World) -> None:
    world.fill(2)
    world.project()
    for n in range(5):
        world.es.index(index=world.index, id="article:1", document={"title": f"by hand {n}"})
    top = world.version("article:1")
    fixed(world)
    found = world.version("article:1")
    assert top is not None
    assert found is not None
    assert found > top if world.view else found == top
    assert drift(world) == 0
    for n in range(6):
        world.put("1", f"later {n}")
        world.project()
    last = world.source("article:1")
    assert last is not None
    assert last["title"] == "later 5", "later changes must pass above the fixed version"


def test_what_has_come_right_since_the_plan_is_left_alone(world: World) -> None:
    world.fill(5)
    world.project()
    world.es.delete(index=world.index, id="article:1")
    world.es.delete(index=world.index, id="article:2")
    planned = plan(world)
    world.put("1", "title 1", "1")
    world.put("1", "newest")
    if not world.view:
        # The tombstone of the delete by hand is one above; the second event passes it.
        world.put("1", "newest")
    world.project()
    repaired = world.reindexing().repair.write(planned, ALICE, "r", rate=0)
    assert (repaired.written, repaired.right_by_now) == (1, 1)


def test_the_limit_holds_and_the_rest_is_reported(viewed: World) -> None:
    world = viewed
    world.fill(10)
    world.project()
    for n in range(1, 6):
        world.es.delete(index=world.index, id=f"article:{n}")
    planned = plan(world, limit=3)
    assert planned.cut
    assert len(planned.findings) == 3
    world.reindexing().repair.write(planned, ALICE, "r", rate=0)
    world.project()
    assert drift(world) == 2
    with pytest.raises(UsageError):
        plan(world, limit=0)


def test_unknown_documents_are_never_deleted(world: World) -> None:
    world.fill(3)
    world.project()
    for id in ("plain", "comment:1"):
        world.es.index(index=world.index, id=id, document={})
    if not world.view:
        world.es.index(index=world.index, id="article:nobody", document={})
    assert plan(world).findings == []


def test_unusually_many_deletes_must_be_meant(viewed: World) -> None:
    world, es, queue, index = viewed, viewed.es, viewed.queue, viewed.index
    world.fill(20)
    world.project()
    lines = [part for n in range(150) for part in ({"index": {"_id": f"article:ghost-{n}"}}, {"title": "ghost"})]
    es.bulk(index=index, operations=lines)
    planned = plan(world)
    with pytest.raises(ManyDeletes, match="150 of 20"):
        world.reindexing().repair.write(planned, ALICE, "r", rate=0)
    with pytest.raises(ManyDeletes):
        world.reindexing().repair.write(planned, ALICE, "r", rate=0, expect_deletes=149)
    assert "pending" not in queue.counts()
    world.reindexing().repair.write(planned, ALICE, "r", rate=0, expect_deletes=150)
    world.project()
    assert drift(world) == 0


def test_a_document_whose_event_failed_is_left_to_a_replay(viewed: World) -> None:
    world = viewed
    world.es.indices.put_mapping(index=world.index, properties={"n": {"type": "integer"}})
    world.fill(3)
    world.project()
    world.put("2", n="99999999999")
    world.project()
    planned = plan(world)
    assert planned.findings == []
    assert planned.failed == 1


def test_a_missing_routed_document_goes_back_to_its_shard(
    queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str
) -> None:
    es.indices.create(index=absent_index, settings={"number_of_shards": 4, "number_of_replicas": 0})
    world = World(queue, es, elastic_url, absent_index, view=False)
    for n in range(6):
        world.put(str(n), routing=f"r{n}")
    world.project()
    es.delete(index=absent_index, id="article:3", routing="r3")
    es.index(index=absent_index, id="article:4", routing="r4", document={"title": "by hand"})
    fixed(world)
    assert es.get(index=absent_index, id="article:3", routing="r3")["_source"]["title"] == "x"
    assert es.get(index=absent_index, id="article:4", routing="r4")["_source"]["title"] == "x"
    assert drift(world) == 0


def test_the_older_of_two_routings_goes_and_the_entity_stays(
    queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str
) -> None:
    es.indices.create(index=absent_index, settings={"number_of_shards": 4, "number_of_replicas": 0})
    world = World(queue, es, elastic_url, absent_index, view=False)
    world.put("1", routing="here")
    world.put("1", "newer", routing="here")
    world.project()
    there = next(r for r in "abcdefgh" if not es.exists(index=absent_index, id="article:1", routing=r))
    es.index(index=absent_index, id="article:1", routing=there, document={}, version=1, version_type="external")
    fixed(world)
    assert not es.exists(index=absent_index, id="article:1", routing=there)
    assert es.get(index=absent_index, id="article:1", routing="here")["_source"]["title"] == "newer"
    assert drift(world) == 0


def test_what_the_view_keeps_is_repaired_by_refreshes_and_by_deletes_that_are_looked_up(
    queue: EventTable, es: Elasticsearch, elastic_url: str, index: str
) -> None:
    world = World(queue, es, elastic_url, index)
    world.fill(10)
    world.project()
    es.delete(index=index, id="article:1")
    es.index(index=index, id="article:2", document={"title": "by hand"})
    es.index(index=index, id="article:99", document={"title": "nobody's"})
    world.connection.execute("delete from articles where id = '4'")  # and no event says so
    before = sum(queue.counts().values())
    repaired = fixed(world)
    assert repaired.by_kind == {"missing": 1, "different": 1, "orphaned": 2}
    assert drift(world) == 0
    ops = "select array_agg(op order by op) from (select op from search_outbox_events order by seq desc limit 4) newest"
    assert (queue.value(ops), queue.counts()) == (["delete", "delete", "refresh", "refresh"], {"done": before + 4})
