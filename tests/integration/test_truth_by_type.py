"""A type of the view and a type of payloads in one index: no order of prune, repair and rebuild loses a document or
brings one back. Real servers."""

from collections.abc import Callable
from itertools import permutations

import pytest
from elasticsearch import Elasticsearch

from outbox.app.operations import operations
from outbox.reindex.rebuild_steps import WouldLose
from outbox.reindex.verify import VerifyOptions
from outbox.store.schema.migrate import migrate
from tests.fixtures.queue import EventTable
from tests.fixtures.rebuilding import ALICE, RebuildWorld

pytestmark = pytest.mark.usefixtures("quick_second_checks")


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str) -> RebuildWorld:
    """Ten articles of the view and fifty notes that travel in events."""
    migrate(queue.url, by_entity=True)
    world = RebuildWorld(queue, es, elastic_url, absent_index)
    world.fill(10)
    queue.produce_many(50, "note", payload='{"text": "x"}')
    world.project()
    return world


def prune(world: RebuildWorld, days: float = 5) -> None:
    operations(world.settings, world.queue.pool("pruning")).prune.run(days, None, ALICE)


def repair(world: RebuildWorld) -> None:
    desk = world.reindexing().repair
    desk.write(desk.plan(VerifyOptions(rate=0), 1000), ALICE, "why", rate=0)
    world.project()


def rebuild(world: RebuildWorld) -> None:
    desk = world.desk()
    desk.finish(desk.swap(world.start(desk), ALICE, "why"))


def count(world: RebuildWorld) -> int:
    world.es.indices.refresh(index=world.index)
    return int(world.es.count(index=world.index)["count"])


ORDERS = list(permutations([prune, repair, rebuild]))


def test_a_rebuild_after_a_prune_has_every_document_that_was_there(world: RebuildWorld) -> None:
    prune(world, 0)
    rebuild(world)
    assert count(world) == 60
    assert world.reindexing().verify.run(VerifyOptions(rate=0)).report.conclusive


def test_a_swap_is_refused_while_only_the_old_index_has_documents_and_each_is_counted(world: RebuildWorld) -> None:
    """As an earlier release pruned them, or someone by hand."""
    world.queue.produce("50", "delete", entity_type="note")
    world.project()
    world.es.index(index=world.index, id="note:50", document={"text": "by hand"})  # its newest event is a delete
    world.es.index(index=world.index, id="article:11", document={"title": "by hand"})  # the view does not have it
    world.es.index(index=world.index, id="strange", document={})
    world.connection.execute("delete from search_outbox_events where entity_type = 'note' and entity_id <> '50'")
    told = r"50 documents would be lost \(49 note, 1 of no entity type\): note:"
    with pytest.raises(WouldLose, match=told) as refused:
        world.rebuilt()
    assert "--accept-loss" in str(refused.value)
    row = world.row()
    assert (row.step, row.status, world.behind()) == ("verifying", "running", [row.old_index])
    assert "49 note" in (row.error or "")
    desk, taken = world.taken(accept_loss=49)
    with pytest.raises(WouldLose):
        desk.carry_on(taken)
    desk, taken = world.taken(accept_loss=50)
    assert desk.carry_on(taken).step == "ready"


@pytest.mark.release("each order is the same three steps, twice", keep=2)
@pytest.mark.parametrize("order", ORDERS, ids=["-".join(step.__name__ for step in order) for order in ORDERS])
def test_what_a_delete_removed_comes_back_in_no_order_of_prune_repair_and_rebuild(
    world: RebuildWorld, order: tuple[Callable[[RebuildWorld], None], ...]
) -> None:
    """The delete is newer than an upsert that came after it and was superseded, and old enough to be pruned first."""
    newest = world.queue.value("select max(event_version) from search_outbox_events")
    delete = world.queue.produce("late", "delete", entity_type="note", event_version=newest + 100)
    world.project()
    aged = "update search_outbox_events set processed_at = now() - interval '10 days' where id = %s"
    world.connection.execute(aged, [delete])
    world.queue.produce("late", entity_type="note", event_version=newest + 50)
    world.project()
    for step in (*order, *order):
        step(world)
        assert world.source("note:late") is None, step
    assert count(world) == 60
