"""`backfill` fills the index in use from a view that joins tables; `refresh` lets the projectors do it."""

import threading
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from outbox.errors import UsageError
from outbox.policy.entity_type import EntityType, KeptBy
from outbox.reindex import backfill, copier, mismatches, refresh
from outbox.reindex.backfill import AtWork, IndexLost, NothingToResume, NotKeptByView
from outbox.reindex.joining import backfill_copier
from outbox.reindex.pacing import LONGEST_DEBT_SECONDS
from outbox.reindex.refresh import Refreshed, RefreshOptions
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.view_shape import BadCondition
from tests.fixtures.joined import ALICE, ROUTED_VIEW, JoinedWorld
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import eventually


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mismatches, "WAITS_SECONDS", (0.1,) * 4)
    monkeypatch.setattr(copier, "PAGE", 20)
    monkeypatch.setattr(refresh, "A_STEP", 10)


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> JoinedWorld:
    return JoinedWorld(queue, es, elastic_url, index)


# backfill


def test_the_index_is_filled_from_the_view_with_an_audit_row_and_a_second_time_does_no_harm(world: JoinedWorld) -> None:
    world.add(50)
    world.comment(7, refresh=False)
    done = world.fill_index()
    assert (done.status, done.written, done.newer, done.refused, done.total) == ("finished", 50, 0, 0, 50)
    assert world.source("article:7") == {"title": "title 7", "comments": 1}
    assert world.drift() == 0
    assert world.queue.counts() == {}
    before = world.version("article:7")
    assert world.fill_index("article").written == 50
    assert (world.version("article:7") or 0) > (before or 0)
    assert [row["written"] for row in world.audit("BACKFILL_SUMMARY")] == [50, 50]


def test_beside_a_projector_and_overlapping_writers_it_converges(world: JoinedWorld) -> None:
    """Comments of two writers that commit in either order, deletes, and a backfill over and over, all at once."""
    world.add(200)
    with world.projecting(), world.writers(200):
        for _ in range(3):
            world.fill_index()
    assert world.queue.counts().keys() == {"done"}
    assert world.drift() == 0


def test_what_changes_between_the_read_and_the_write_of_a_page_is_not_put_back(
    world: JoinedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(3)
    write = copier.Copier.write

    def late(self: copier.Copier, page: copier.DocumentPage) -> copier.Copied:
        """The projector is faster: its refreshes drew their versions after the page was read."""
        world.comment(1)
        world.delete(2)
        world.project()
        monkeypatch.setattr(copier.Copier, "write", write)
        return write(self, page)

    monkeypatch.setattr(copier.Copier, "write", late)
    world.fill_index()
    assert world.source("article:1") == {"title": "title 1", "comments": 1}
    assert world.source("article:2") is None
    assert world.drift() == 0


@pytest.mark.parametrize(("held", "written"), [(10**9, True), (2**62 + 1, False)], ids=["ahead", "too high"])
def test_an_index_that_is_ahead_of_the_database_moves_its_versions_on(
    world: JoinedWorld, held: int, written: bool
) -> None:
    """A restored database; a version that somebody wrote by hand is not followed, but reported."""
    world.add(30)
    world.es.index(index=world.index, id="article:5", document={}, version=held, version_type="external")
    done = world.fill_index()
    assert (done.written, done.refused) == ((30, 0) if written else (29, 1))
    assert (world.drift() == 0) is written
    assert (world.queue.value("select last_value from search_outbox_version") > held) is written
    assert len(world.audit("VERSION_RAISED")) == written
    if not written:
        assert "outbox rebuild" in (done.refusals or [{}])[0]["error"]


def test_one_that_dies_while_a_later_page_is_in_the_index_and_an_earlier_one_is_not_loses_neither(
    world: JoinedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(90)
    write, third_is_written = copier.Copier.write, threading.Event()

    class Died(BaseException):
        pass

    def dies(self: copier.Copier, page: copier.DocumentPage) -> copier.Copied:
        if page.last == "40":
            with pytest.raises(AtWork):
                world.reindexing().backfill.start((), ALICE, "second")
            assert third_is_written.wait(20)
            raise Died
        done = write(self, page)
        if page.last == "60":
            third_is_written.set()
        return done

    monkeypatch.setattr(copier.Copier, "write", dies)
    with pytest.raises(Died):
        world.fill_index()
    assert (world.source("article:50") is not None, world.source("article:30")) == (True, None)
    monkeypatch.setattr(copier.Copier, "write", write)
    assert world.queue.value("select cursor from search_outbox_rebuild_parts") == "20"
    desk = world.reindexing().backfill
    done = desk.run(desk.resume(), ALICE, 0.0)
    assert (done.status, done.written) == ("finished", 90)
    with pytest.raises(NothingToResume):
        desk.resume()
    assert world.drift() == 0


def test_types_that_the_view_does_not_have_and_an_index_that_is_not_there_are_refused_by_name(
    world: JoinedWorld,
) -> None:
    with pytest.raises(NotKeptByView, match="has no entity at all"):
        world.fill_index()
    world.add(1)
    with pytest.raises(NotKeptByView, match="note") as refused:
        world.fill_index("article", "note")
    assert "outbox types set TYPE view" in str(refused.value)
    world.es.indices.put_settings(index=world.index, settings={"index.blocks.write": True})
    with pytest.raises(IndexLost, match="--resume"):
        world.fill_index()
    world.es.indices.put_settings(index=world.index, settings={"index.blocks.write": False})
    desk = world.reindexing().backfill
    assert desk.run(desk.resume(), ALICE, 0.0).written == 1


def test_it_steps_back_while_events_wait(world: JoinedWorld) -> None:
    pace = backfill_copier(world.settings, world.queue.pool(), world.elastic, 0.0, "alice").pace
    rested: list[float] = []
    pace.busy, pace.rest = (lambda: True), rested.append
    pace.took(4000)
    assert rested == [pytest.approx(4000 / backfill.BUSY_RATE - LONGEST_DEBT_SECONDS)]


def test_a_view_that_says_the_routing_is_filled_to_the_right_shards_and_a_document_elsewhere_is_repaired(
    queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str
) -> None:
    es.indices.create(index=absent_index, settings={"number_of_shards": 4, "number_of_replicas": 0})
    world = JoinedWorld(queue, es, elastic_url, absent_index)
    world.connection.execute(ROUTED_VIEW.encode())
    world.add(9)
    assert world.fill_index().written == 9
    assert es.get(index=absent_index, id="article:4", routing="shelf1")["_source"]["title"] == "title 4"
    assert world.drift() == 0
    world.connection.execute("update articles set shelf = 'other' where id = 4")  # and no event says so
    desk = world.reindexing().repair
    plan = desk.plan(_compared(), 100)
    assert [finding.fields for finding in plan.findings] == [("_routing",)]
    desk.write(plan, ALICE, "r", rate=0)
    world.project()
    assert not es.exists(index=absent_index, id="article:4", routing="shelf1")
    assert es.exists(index=absent_index, id="article:4", routing="other")
    assert world.drift() == 0


def test_many_documents_of_entities_that_are_gone_are_removed_and_no_brake_holds_them(world: JoinedWorld) -> None:
    world.add(150)
    world.fill_index()
    world.connection.execute("delete from articles where id > 50")  # and no event says so
    desk = world.reindexing().repair
    assert desk.write(desk.plan(_compared(), 1000), ALICE, "r", rate=0, expect_deletes=100).written == 100
    world.project()
    assert world.queue.counts() == {"done": 100}
    assert world.count() == 50


def _compared() -> Any:
    from outbox.reindex.verify import VerifyOptions as Compared

    return Compared(rate=0)


def test_a_backfill_declares_what_nobody_has_and_a_type_of_payloads_is_refused(world: JoinedWorld) -> None:
    world.add(3)
    world.fill_index("article")
    types = PostgresEntityTypes(world.queue.pool())
    assert [(each.entity_type, each.kept_by, each.declared_by) for each in types.list()] == [
        ("article", KeptBy.VIEW, "alice")
    ]
    types.change("article", EntityType(KeptBy.PAYLOAD), ALICE, "why", None)
    for wanted in ((), ("article",)):
        with pytest.raises(NotKeptByView):
            world.fill_index(*wanted)


# refresh


def written(world: JoinedWorld, wish: RefreshOptions, **more: Any) -> Refreshed:
    desk = world.reindexing().refresh
    done = desk.begin()
    desk.write(wish, ALICE, "why", done, rate=0, **more)
    return done


def entities(world: JoinedWorld) -> list[int]:
    query = "select entity_id::bigint from search_outbox_events where op = 'refresh' order by seq"
    return [row[0] for row in world.connection.execute(query).fetchall()]


def test_refreshes_are_written_in_steps_and_go_on_after_the_last_id(world: JoinedWorld) -> None:
    world.add(35)

    class Stopped(BaseException):
        pass

    def stop(so_far: int) -> None:
        if so_far == 20:
            raise Stopped

    desk = world.reindexing().refresh
    done = desk.begin()
    assert desk.types([]) == ["article"]
    with pytest.raises(Stopped):
        desk.write(RefreshOptions(["article"]), ALICE, "why", done, rate=0, on_step=stop)
    assert done.last is not None
    assert (done.written, done.last.entity_id) == (20, "20")
    assert written(world, RefreshOptions(["article"], after=done.last)).written == 15
    assert entities(world) == list(range(1, 36))
    world.project()
    assert world.drift() == 0
    steps = world.audit("REFRESH_SUMMARY")
    assert [(row["events"], row["first"], row["last"]) for row in steps] == [
        (10, "1", "10"),
        (10, "11", "20"),
        (10, "21", "30"),
        (5, "31", "35"),
    ]


def test_a_condition_chooses_by_the_views_columns_or_by_other_tables(world: JoinedWorld) -> None:
    world.add(30)
    world.comment(3, refresh=False)
    wish = RefreshOptions(
        ["article"], condition="(document->>'comments')::int > 0 and document->>'title' like 'title%'"
    )
    assert world.reindexing().refresh.count(wish) == {"article": 1}
    assert written(world, wish).by_type == {"article": 1}
    assert written(
        world, RefreshOptions(["article"], condition="entity_id in (select id from articles where id > 28)")
    ).written
    assert entities(world) == [3, 29, 30]
    assert world.audit("REFRESH_SUMMARY")[0]["where"] == wish.condition


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("", "one SQL condition"),
        ("price > 100", 'column "price" does not exist'),
        ("true; drop table articles", "syntax error"),
        ("true) or (true", "syntax error"),
        ("true, true", "type boolean"),
        ("true -- ", None),
        ("count(*) > 1", "aggregate"),
        ("nextval('search_outbox_seq') > 0", "read-only"),
        ("(document->>'title')::int > 1", "invalid input syntax"),
        ("exists (delete from articles)", "syntax error"),
        ("x" * 3000, "at most 2,000"),
    ],
)
def test_what_is_not_one_readable_condition_is_refused_and_nothing_is_written(
    world: JoinedWorld, condition: str, told: str | None
) -> None:
    world.add(3)
    wish = RefreshOptions(["article"], condition=condition)
    if told is None:
        assert written(world, wish).written == 3
        return
    with pytest.raises(UsageError, match=told) as refused:
        written(world, wish)
    assert isinstance(refused.value, BadCondition) or "--where" in str(refused.value)
    assert world.queue.counts() == {}
    assert world.queue.value("select count(*) from articles") == 3


def test_ids_may_be_gone_and_must_be_ids(world: JoinedWorld) -> None:
    world.add(2)
    world.fill_index()
    world.connection.execute("delete from articles where id = 2")
    assert written(world, RefreshOptions(["article"], ids=("2", "1"))).written == 2
    world.project()
    assert world.source("article:2") is None
    with pytest.raises(UsageError, match="'007' is no id"):
        written(world, RefreshOptions(["article"], ids=("007",)))


def test_a_refresh_of_all_heals_a_restored_database(world: JoinedWorld) -> None:
    world.add(10)
    world.fill_index()
    world.connection.execute("select setval('search_outbox_version', 1)")
    world.connection.execute("update articles set title = 'restored' where id = 4")
    written(world, RefreshOptions(["article"]))
    world.project()
    eventually(lambda: world.drift() == 0, what="no drift")
