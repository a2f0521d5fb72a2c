"""A rebuild step by step on real servers: what each step waits for, what is refused, and a kill at every call."""

import json
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from outbox.errors import Conflict, ElasticsearchDown, UsageError
from outbox.facts import Warned
from outbox.policy.outcome import Failure, Reason
from outbox.ports import BulkAction
from outbox.reindex import copier
from outbox.reindex.backfill import AtWork, RebuildUnderWay
from outbox.reindex.rebuild_steps import (
    Broken,
    HeldByAnother,
    InTheWay,
    NotAlike,
    NoWayBack,
    TooManyRefused,
    WouldLose,
)
from outbox.reindex.verify import VerifyOptions
from outbox.sink.elastic import ElasticSink
from outbox.sink.new_index import ElasticNewIndex, MappingRefused, NotAnAlias
from tests.fixtures.depth import depth
from tests.fixtures.queue import EventTable
from tests.fixtures.rebuilding import ALICE, Fuse, JoinedRebuildWorld, Killed, RebuildWorld
from tests.fixtures.sinks import is_opensearch
from tests.fixtures.world import World

pytestmark = pytest.mark.usefixtures("quick_second_checks")

# The fuse burns before and after every call: an odd step kills at both by turns, an even one always at the same.
STEP = depth(6, 3, 1)


@pytest.fixture(params=[True, False], ids=["view", "events"])
def either(
    request: pytest.FixtureRequest, queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str
) -> RebuildWorld:
    return RebuildWorld(queue, es, elastic_url, absent_index, view=request.param)


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str) -> RebuildWorld:
    return RebuildWorld(queue, es, elastic_url, absent_index)


def drift(world: World, index: str | None = None) -> int:
    return world.reindexing().verify.run(VerifyOptions(rate=0, index=index)).report.drift


def change(world: World) -> None:
    """An update, an insert and a delete."""
    world.put("2", "changed")
    world.put("new", "new")
    world.remove("3")


# The way of a rebuild


def test_from_start_to_finish_with_changes_at_every_step(either: RebuildWorld) -> None:
    world = either
    v1, v2 = f"{world.index}-v1", f"{world.index}-v2"
    world.fill(1200)
    world.project()
    desk = world.desk()
    ready = world.start(desk)
    assert (ready.step, ready.status, ready.mirrors) == ("ready", "running", (v2,))
    assert ready.written >= 1199
    assert world.behind() == [v1]
    change(world)
    world.project()
    assert drift(world, v2) == 0, "what is written now is written to both"

    swapped = desk.swap(ready, ALICE, "why")
    assert (swapped.step, swapped.status, swapped.mirrors) == ("swapped", "swapped", (v1,))
    assert world.behind() == [v2]
    world.put("4", "after the swap")
    world.remove("5")
    world.project()
    assert drift(world) == 0
    assert drift(world, v1) == 0, "the old index stays in step for a rollback"

    finished = desk.finish(swapped)
    assert (finished.step, finished.status, finished.mirrors) == ("finished", "finished", ())
    assert world.indexes() == {v2}
    world.put("6", "after the end")
    world.project()
    assert drift(world) == 0
    settings = world.es.indices.get_settings(index=v2, flat_settings=True)[v2]["settings"]
    assert settings["index.gc_deletes"] == "1h"
    assert settings["index.number_of_replicas"] == "0", "settings of the old index stand"


def test_a_rollback_goes_back_to_an_index_that_missed_nothing(world: RebuildWorld) -> None:
    world.fill(50)
    world.project()
    swapped = world.rebuilt()
    change(world)
    world.project()
    desk, taken = world.taken()
    rolled = desk.rollback(taken, ALICE, "not yet")
    assert rolled.status == "rolled_back"
    assert world.behind() == [f"{world.index}-v1"]
    assert drift(world) == 0
    world.put("7", "later")
    world.project()
    assert drift(world) == 0
    desk, taken = world.taken()
    assert desk.finish(taken).step == "finished"
    assert world.indexes() == {f"{world.index}-v1"}
    actions = world.connection.execute(
        "select detail from search_outbox_audit where action = 'REBUILD_SWAPPED' order by id"
    ).fetchall()
    told = [row[0] if isinstance(row[0], dict) else json.loads(row[0]) for row in actions]
    assert [(each["from"], each["to"]) for each in told] == [
        (swapped.old_index, swapped.new_index),
        (swapped.new_index, swapped.old_index),
    ]


# Both must have it


def test_the_backfill_waits_for_a_worker_that_has_not_confirmed(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    told: list[str] = []
    rested: list[float] = []

    def rest(seconds: float) -> None:
        rested.append(seconds)
        assert world.row().step == "mirroring"
        if len(rested) == 8:
            world.second.tend()

    desk = world.desk()
    desk.steps.crew.rest, desk.steps.crew.say = rest, told.append
    assert world.start(desk).step == "ready"
    assert len(rested) >= 8


def test_silent_and_stopped_workers_are_not_waited_for(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    old = "insert into search_outbox_workers (worker_id, start_id, heartbeat_at, state)"
    world.connection.execute(
        f"{old} values ('dead', gen_random_uuid(), now() - interval '5 minutes', 'running')".encode()
    )
    world.connection.execute(f"{old} values ('gone', gen_random_uuid(), now(), 'stopped')".encode())
    assert world.start().step == "ready"


def test_batches_claimed_before_the_confirmation_are_waited_for(world: RebuildWorld) -> None:
    """A batch that was claimed before must be over: it may have been written to one index only."""
    world.fill(3)
    world.project()
    world.put("1", "in flight")
    claimed = world.worker.claim()
    assert claimed.events
    rested: list[float] = []

    def rest(seconds: float) -> None:
        world.second.tend()
        rested.append(seconds)
        if len(rested) == 6:
            world.worker.projector.project(claimed, 0)

    desk = world.desk()
    desk.steps.crew.rest = rest
    ready = world.start(desk)
    assert len(rested) >= 6
    assert drift(world, ready.new_index) == 0


def test_leases_of_the_dead_are_taken_back_where_no_daemon_does_it(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    world.put("1", "claimed by a dead worker")
    world.worker.claim()
    world.queue.expire()
    assert world.start().step == "ready"
    assert world.queue.leases() == 0


def test_an_event_is_done_when_both_have_it(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    ready = world.start()
    world.es.indices.put_settings(index=ready.new_index, settings={"index.blocks.write": True})
    world.put("1", "blocked in the new one")
    world.project()
    assert world.source("article:1") == {"title": "blocked in the new one", "n": 1}
    assert world.queue.counts() == {"done": 4}, "production goes on"
    row = world.row()
    assert (row.status, row.mirrors) == ("broken", ())
    assert "FORBIDDEN/8" in (row.broken or "")
    assert [fact.event for fact in world.facts if isinstance(fact, Warned)] == ["rebuild.broken"]
    desk, taken = world.taken()
    with pytest.raises(Broken, match="--resume"):
        desk.swap(taken, ALICE, "r")

    world.es.indices.put_settings(index=ready.new_index, settings={"index.blocks.write": False})
    world.remove("2")
    world.project()
    desk, taken = world.taken()
    again = desk.carry_on(taken)
    assert (again.step, again.status, again.broken) == ("ready", "running", None)
    assert drift(world, again.new_index) == 0, "what was deleted meanwhile must not be back"


def test_a_new_index_that_is_deleted_by_hand_never_comes_back_by_itself(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    ready = world.start()
    world.es.indices.delete(index=ready.new_index)
    world.remove("1")
    world.put("2", "later")
    world.project()
    assert world.row().status == "broken"
    assert not ElasticNewIndex(world.elastic).exists(ready.new_index)
    desk, taken = world.taken()
    assert desk.carry_on(taken).step == "ready"
    assert drift(world, ready.new_index) == 0


def test_a_resume_replaces_an_index_that_a_write_created(world: RebuildWorld) -> None:
    """OpenSearch creates it, blocked and hidden. Elasticsearch does not, and the resume creates it there."""
    world.fill(3)
    world.project()
    new = world.start().new_index
    world.es.indices.delete(index=new)
    sent = ElasticSink(world.elastic).write([BulkAction(new, "article:1", 1, None, b'{"guessed": 1}')], 30.0)
    assert isinstance(sent.outcomes[0], Failure)
    assert sent.outcomes[0].reason is Reason.ES_INDEX_MISSING
    assert bool(world.es.indices.exists(index=new)) is is_opensearch(world.elastic)
    world.put("2", "later")
    world.project()
    assert world.row().status == "broken"
    desk, taken = world.taken()
    assert desk.carry_on(taken).step == "ready"
    made = world.es.indices.get(index=new, flat_settings=True)[new]
    assert {str(made["settings"].get(f"index.{name}", "false")) for name in ("blocks.write", "hidden")} == {"false"}
    assert "guessed" not in made["mappings"]["properties"]
    assert drift(world, new) == 0


def test_an_old_index_that_misses_writes_after_the_swap_forbids_the_way_back(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    swapped = world.rebuilt()
    world.es.indices.put_settings(index=swapped.old_index, settings={"index.blocks.write": True})
    world.put("1", "only in the new one")
    world.project()
    world.queue.make_due()  # its first try met the word from before the swap
    world.project()
    row = world.row()
    assert (row.status, row.mirrors) == ("swapped", ())
    desk, taken = world.taken()
    with pytest.raises(NoWayBack):
        desk.rollback(taken, ALICE, "r")
    assert world.behind() == [swapped.new_index]
    assert desk.finish(taken).step == "finished"


# What the new mapping refuses


def test_documents_that_only_the_new_mapping_refuses_are_reported_and_stop_the_swap(world: RebuildWorld) -> None:
    world.fill(20)
    world.put("1", n="1.5")
    world.put("2", n="2.5")
    world.project()
    strict = {"properties": {"n": {"type": "long", "coerce": False}, "title": {"type": "keyword"}}}
    with pytest.raises(NotAlike, match="2 missing"):
        world.start(mapping=strict)
    row = world.row()
    assert row.step == "verifying"
    assert row.refused >= 2
    assert {refusal["id"] for refusal in row.refusals or ()} == {"article:1", "article:2"}
    assert "missing" in (row.error or "")
    world.put("3", n="3.5")
    world.project()
    world.second.tend()
    assert world.queue.counts() == {"done": 23}
    assert {refusal["id"] for refusal in world.row().refusals or ()} == {"article:1", "article:2", "article:3"}
    assert world.source("article:3") == {"title": "x", "n": 3.5}

    desk, taken = world.taken(accept_drift=3)
    assert desk.carry_on(taken).step == "ready"


def test_too_many_refusals_stop_the_copying(world: RebuildWorld) -> None:
    world.fill(1200)
    world.project()
    with pytest.raises(TooManyRefused, match="refused"):
        world.start(world.desk(max_refused=100), {"dynamic": "strict", "properties": {}})
    row = world.row()
    assert row.step == "backfilling"
    assert len(row.refusals or ()) == 100
    desk, taken = world.taken()
    assert desk.cancel(taken).status == "cancelled"


def test_a_mapping_that_elasticsearch_refuses_is_said_before_anything_starts(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    with pytest.raises(MappingRefused):
        world.start(mapping={"properties": {"title": {"type": "no-such-type"}}})
    row = world.row()
    assert (row.status, row.mirrors, row.revision) == ("failed", (), 0)
    assert world.indexes() == {f"{world.index}-v1"}
    assert world.start().step == "ready", "the next try is not in anyone's way"


# What cannot be rebuilt


def test_a_plain_index_and_an_alias_of_two_are_refused(world: RebuildWorld, index: str) -> None:
    settings = world.settings_for(ELASTIC_INDEX=index)
    from outbox.app.reindex import join

    desk = join(settings, world.queue.pool(), world.elastic).rebuild
    with pytest.raises(NotAnAlias, match="is an index") as refused:
        desk.start(index, ALICE, "r", None, {})
    assert refused.value.exit_code == 78
    world.es.indices.put_alias(index=index, name=world.index)
    with pytest.raises(NotAnAlias, match="2 indexes"):
        world.start()
    assert world.desk().newest() is None


def test_only_one_at_a_time(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    desk = world.desk()
    ready = world.start(desk)
    with pytest.raises(InTheWay, match="ready"):
        world.start()
    with pytest.raises(HeldByAnother):
        world.desk().take()
    with pytest.raises(UsageError):
        desk.start("another", ALICE, "r", None, {})
    with pytest.raises(Conflict):
        desk.rollback(ready, ALICE, "r")
    with pytest.raises(Conflict):
        desk.finish(ready)
    desk.swap(ready, ALICE, "r")
    with pytest.raises(InTheWay, match="--finish"):
        world.start()
    with pytest.raises(Conflict, match="too late"):
        desk.cancel(world.row())


def test_a_backfill_waits_for_a_rebuild_whose_index_would_lack_what_it_writes(world: RebuildWorld) -> None:
    """Between the comparison and the swap, and until there is no way back. An attached partition has no events."""
    world.fill(3)
    world.project()
    desk = world.desk()
    ready = world.start(desk)
    world.connection.execute("insert into articles (id, title) values ('apart', 'without an event')")
    backfill = world.reindexing().backfill
    with pytest.raises(RebuildUnderWay):
        backfill.start(["article"], ALICE, "a partition was attached")
    swapped = desk.swap(ready, ALICE, "why")
    with pytest.raises(RebuildUnderWay):
        backfill.start(["article"], ALICE, "a partition was attached")
    desk.finish(swapped)
    backfill.run(backfill.start(["article"], ALICE, "a partition was attached"), ALICE, 0)
    assert drift(world) == 0


def test_a_rebuild_does_not_begin_beside_a_backfill(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    backfill = world.reindexing().backfill
    begun = backfill.start(["article"], ALICE, "why")
    with pytest.raises(AtWork):
        world.start()
    backfill.run(begun, ALICE, 0)
    world.rebuilt()
    assert drift(world) == 0


def test_a_cancelled_rebuild_leaves_nothing_behind(world: RebuildWorld) -> None:
    world.fill(3)
    world.project()
    desk = world.desk()
    cancelled = desk.cancel(world.start(desk))
    assert (cancelled.status, cancelled.mirrors) == ("cancelled", ())
    assert world.indexes() == {f"{world.index}-v1"}
    assert not world.es.indices.exists_index_template(name=f"outbox-rebuild-{world.index}-v2")
    change(world)
    world.project()
    assert drift(world) == 0


def test_an_alias_that_someone_else_moved_is_left_alone(world: RebuildWorld, index: str) -> None:
    world.fill(3)
    world.project()
    desk = world.desk()
    ready = world.start(desk)
    world.es.indices.update_aliases(
        actions=[
            {"remove": {"index": f"{world.index}-v1", "alias": world.index}},
            {"add": {"index": index, "alias": world.index}},
        ]
    )
    with pytest.raises(Conflict, match="changed by someone else"):
        desk.swap(ready, ALICE, "r")
    assert world.behind() == [index]


def test_a_filter_of_the_alias_is_carried_over(world: RebuildWorld) -> None:
    world.fill(20)
    world.project()
    only = {"range": {"n": {"lte": 10}}}
    world.es.indices.put_alias(index=f"{world.index}-v1", name=world.index, filter=only, is_write_index=True)
    desk = world.desk()
    ready = world.start(desk)
    desk.swap(ready, ALICE, "r")
    assert world.es.indices.get_alias(index=world.index)[ready.new_index]["aliases"][world.index]["filter"] == only


# What is copied, and at which version


@pytest.mark.release("a backfill meets the same race in the quick run: tests/integration/test_first_load.py")
def test_joined_documents_are_copied_while_their_children_change(
    queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers comment on the same articles, and delete some, while every page is copied."""
    monkeypatch.setattr(copier, "PAGE", 10)
    world = JoinedRebuildWorld(queue, es, elastic_url, absent_index)
    world.add(100)
    for article in range(1, 101):
        world.refresh(article)
    world.project()
    with world.projecting(), world.writers(100):
        ready = world.start(mapping={"properties": {"title": {"type": "text"}, "comments": {"type": "long"}}})
    assert drift(world, ready.new_index) == 0
    assert drift(world, ready.old_index) == 0


def test_routed_documents_keep_their_shard(
    queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str
) -> None:
    world = RebuildWorld(queue, es, elastic_url, absent_index, view=False)
    for n in range(8):
        world.put(str(n), routing=f"r{n}")
    world.project()
    desk = world.desk()
    ready = desk.carry_on(desk.start(world.index, ALICE, "r", None, {"index.number_of_shards": "4"}))
    for n in range(8):
        assert es.exists(index=ready.new_index, id=f"article:{n}", routing=f"r{n}")
    assert drift(world, ready.new_index) == 0


def test_large_and_unreadable_documents_do_not_stop_the_copying_but_what_would_be_lost_the_swap(
    world: RebuildWorld,
) -> None:
    world.fill(20)
    world.put("big", "x" * 200_000)
    world.project()
    world.connection.execute(
        b"create or replace view search_documents as select 'article'::text as entity_type, id as entity_id,"
        b" case when 1 / (n::int - 7) > 5 then null else json_build_object('title', title, 'n', n) end as document,"
        b" version from articles"
    )
    world.es.indices.put_mapping(index=f"{world.index}-v1", properties={"body": {"type": "text"}})
    with pytest.raises(WouldLose, match="1 article"):
        world.start(mapping={"properties": {"title": {"type": "text"}}})
    desk, taken = world.taken(accept_loss=1)
    ready = desk.carry_on(taken)
    assert (ready.step, ready.refused) == ("ready", 1)
    assert (ready.refusals or [{}])[0]["error"].startswith("unreadable")
    assert world.source("article:big", ready.new_index) is not None


def test_an_elasticsearch_that_is_down_leaves_the_rebuild_to_be_resumed(world: RebuildWorld) -> None:
    world.fill(5)
    world.project()
    desk = world.desk()
    create = desk.steps.indices.create

    def away(*args: Any) -> None:
        raise ElasticsearchDown("away")

    desk.steps.indices.create = away  # type: ignore[method-assign,assignment]
    with pytest.raises(ElasticsearchDown):
        world.start(desk)
    assert (world.row().status, world.row().step) == ("running", "created")
    desk.steps.indices.create = create  # type: ignore[method-assign]
    desk, taken = world.taken()
    assert desk.carry_on(taken).step == "ready"


# Killed anywhere


def to_the_end(world: RebuildWorld) -> None:
    """What a person does after a kill: whatever the newest rebuild asks for, until it is over."""
    for _ in range(6):
        newest = world.desk().newest()
        if newest is None or newest.is_over:
            if newest is not None and newest.status == "finished":
                return
            world.desk().let_go(world.start())
            continue
        desk, taken = world.taken()
        if taken.status == "swapped" or taken.step == "finishing":
            desk.finish(taken)
            continue
        carried = desk.carry_on(taken)
        if carried.step in ("ready", "swapping"):
            desk.swap(carried, ALICE, "r")
    raise AssertionError(f"it does not end: {world.row()}")


@pytest.mark.slow
def test_a_kill_before_and_after_every_call_ends_right(world: RebuildWorld) -> None:
    """Start, copy, compare, swap, finish: killed at one call, then a later one, and so on until none is left.

    Before and after every call with OUTBOX_TEST_SLOW, else at every third of these moments."""
    world.fill(30)
    world.project()
    kills = 0
    for calls in range(1, 200, STEP):
        fuse = Fuse(calls)
        desk = world.desk(fuse)
        try:
            desk.finish(desk.swap(world.start(desk), ALICE, "r"))
        except Killed:
            kills += 1
        world.put(str(1 + calls % 30), f"round {calls}")
        world.put(f"extra-{calls}", "x")
        world.remove(f"extra-{calls - STEP}")
        world.project()
        if fuse.left > 0:
            break
        fuse.left = 10**9
        to_the_end(world)
        world.project()
        assert len(world.behind()) == 1
        assert world.indexes() == set(world.behind()), "nothing is left behind"
    assert kills > 20 / STEP
    assert drift(world) == 0


def back_to_the_start(world: RebuildWorld, act: str) -> None:
    """The same after a kill in a rollback or a cancel."""
    for _ in range(4):
        if world.row().step in ("finished", "cancelled"):
            return
        desk, taken = world.taken()
        if act == "cancel":
            desk.cancel(taken)
        elif taken.status == "swapped":
            desk.rollback(taken, ALICE, "r")
        else:
            desk.finish(taken)
    raise AssertionError(f"it does not end: {world.row()}")


@pytest.mark.slow
@pytest.mark.parametrize("act", ["rollback", "cancel"])
def test_a_kill_at_every_call_on_the_way_back_ends_right(world: RebuildWorld, act: str) -> None:
    world.fill(10)
    world.project()
    old = world.behind()
    survived = False
    while not survived:
        calls = world.round = world.round + STEP
        ready = world.start() if act == "cancel" else world.rebuilt()
        desk, fuse = world.desk(), Fuse(calls)
        world.expire_lease()
        taken = desk.take()
        mortal = world.mortal(desk, fuse)
        try:
            mortal.cancel(taken) if act == "cancel" else mortal.finish(mortal.rollback(taken, ALICE, "r"))
        except Killed:
            assert ready.new_index != old[0]
        survived = fuse.left > 0
        fuse.left = 10**9
        world.put("1", f"{act} {calls}")
        world.project()
        back_to_the_start(world, act)
        assert world.behind() == old
        assert world.indexes() == set(old)
    assert world.round > 5
    assert drift(world) == 0
