"""Parts: bounds by the id's own type cover every key exactly once; parts are taken over and go on at their cursor.
Writes are counted against documents."""

import threading
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from outbox.app.part_process import part_worker
from outbox.policy.drift import DRIFT, Kind
from outbox.reindex import copier, key_bounds, mismatches
from outbox.reindex import parts as bounds
from outbox.reindex.backfill import BackfillDesk
from outbox.reindex.key_bounds import KeyBounds
from outbox.reindex.parallel import PartJob, Spread
from outbox.reindex.part_table import MOST_TRIES, PostgresParts
from outbox.reindex.parts import PartsProgress, PlannedPart, RebuildPart, Work, WorkKind, cut
from outbox.reindex.verify import VerifyOptions
from outbox.store.truth import PostgresTruth
from tests.fixtures.joined import ALICE, JoinedWorld
from tests.fixtures.queue import EventTable
from tests.fixtures.rebuilding import RebuildWorld
from tests.integration.test_id_types import keys_of

MANY = 3_000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mismatches, "WAITS_SECONDS", (0.1,) * 4)
    monkeypatch.setattr(copier, "PAGE", 50)


# Bounds


SKEWED = {
    "bigint": "case when g % 10 = 0 then g * 1000000::bigint else g end",
    "uuid": "case when g % 10 = 0 then md5(g::text)::uuid else ('00' || substr(md5(g::text), 3))::uuid end",
    "text": "case when g % 10 = 0 then md5(g::text) else 'aa' || g end",
    "numeric": "case when g % 10 = 0 then g * 1000000.5 else g / 100.0 end",
}


@pytest.mark.parametrize(
    ("type_name", "analysed"), [("bigint", True), ("uuid", True), ("text", False), ("numeric", False)]
)
def test_parts_of_skewed_keys_are_about_alike(
    queue: EventTable, monkeypatch: pytest.MonkeyPatch, type_name: str, analysed: bool
) -> None:
    """Nine of ten keys lie in a hundredth of the range. With statistics no key is read."""
    monkeypatch.setattr(key_bounds, "ONE_SAMPLE_ROWS", 100)
    execute = queue.connection.execute
    execute(f"create table things (id {type_name} primary key)".encode())
    execute(f"insert into things select distinct {SKEWED[type_name]} from generate_series(1, {MANY}) g".encode())
    execute(
        b"create view search_documents as select 'thing'::text as entity_type, id as entity_id,"
        b" json_build_object('id', id) as document from things"
    )
    if analysed:
        execute("analyze things")
        monkeypatch.setattr(KeyBounds, "_sample", lambda *_: pytest.fail("the keys were read"))
    truth = PostgresTruth(queue.pool(), "search_documents")
    ranges = cut(KeyBounds(queue.pool(), "search_documents").keys("thing", 20, in_view=True), 20)
    sizes = [len(keys_of(truth, [each], 1000)) for each in ranges]
    assert sum(sizes) == queue.value("select count(*) from things")
    assert len(sizes) == 20
    assert max(sizes) < 3 * MANY / 20, sizes


# The table of parts


@pytest.fixture
def table(queue: EventTable) -> PostgresParts:
    made = parts_of(queue, "p1")
    made.plan([PlannedPart(number, "thing", str(number), str(number + 1)) for number in (1, 2, 3)])
    return made


def parts_of(queue: EventTable, owner: str) -> PostgresParts:
    return PostgresParts(queue.pool(), Work(WorkKind.BACKFILL, 7), owner=owner)


def taken(part: RebuildPart | None) -> RebuildPart:
    assert part is not None
    return part


def test_a_part_has_one_owner_and_goes_on_elsewhere_at_its_cursor(queue: EventTable, table: PostgresParts) -> None:
    first, other = taken(table.claim()), parts_of(queue, "p2")
    assert (first.number, first.after, first.high) == (1, "1", "2")
    assert table.wrote_page(first, "1.5", 10, 1, 2)
    assert [taken(other.claim()).number, taken(other.claim()).number, other.claim()] == [2, 3, None]
    assert not other.wrote_page(first, "1.7", 1, 0, 0), "it is not theirs"
    queue.connection.execute("update search_outbox_rebuild_parts set lease_until = clock_timestamp() where number = 1")
    again = taken(other.claim())
    assert (again.number, again.after) == (1, "1.5")
    assert not table.wrote_page(first, "1.9", 1, 0, 0), "it was taken over"
    assert not table.finish(first)
    assert other.finish(again)
    assert other.progress().done == 13
    assert (other.progress().open, other.progress().held) == (2, 2)
    other.let_go()
    assert (table.progress().held, list(table.numbers())) == (0, [2, 3])


def test_whoever_dies_with_a_part_again_and_again_ends_the_work(queue: EventTable, table: PostgresParts) -> None:
    for _ in range(MOST_TRIES):
        assert taken(table.claim()).number == 1
        table.free(["p1"])
    assert [taken(table.claim()).number, taken(table.claim()).number, table.claim()] == [2, 3, None]
    assert table.progress().stuck == 1
    table.try_again()
    assert taken(table.claim()).number == 1
    table.let_go()
    assert queue.value("select tries from search_outbox_rebuild_parts where number = 1") == 0


def test_two_that_claim_at_once_never_get_the_same_part(queue: EventTable) -> None:
    table = parts_of(queue, "planner")
    table.plan([PlannedPart(number, "thing") for number in range(200)])
    got: list[int] = []

    def take(owner: str) -> None:
        mine = parts_of(queue, owner)
        while (part := mine.claim()) is not None:
            got.append(part.number)

    threads = [threading.Thread(target=take, args=[f"w{n}"]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(200))


# Copying


class HereAndNow:
    """An engine in this process: threads, each with its own connections."""

    def __init__(self, world: Any, at_once: int) -> None:
        self.world, self.at_once = world, at_once
        self.errors: list[BaseException] = []

    def start(self, job: PartJob, table: PostgresParts) -> None:
        self.threads = [threading.Thread(target=self._work, args=[job, f"t{n}"]) for n in range(self.at_once)]
        for thread in self.threads:
            thread.start()

    def _work(self, job: PartJob, owner: str) -> None:
        try:
            with part_worker(self.world.settings_for(), job, owner) as worker:
                worker.run()
        except BaseException as error:
            self.errors.append(error)

    def tend(self, progress: PartsProgress) -> None:
        for thread in self.threads:
            thread.join(0.02)
        if self.errors:
            raise self.errors[0]

    def stop(self) -> None:
        for thread in self.threads:
            thread.join()


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> JoinedWorld:
    return JoinedWorld(queue, es, elastic_url, index)


def desk_of(world: JoinedWorld, processes: int, engine: type[HereAndNow] = HereAndNow) -> BackfillDesk:
    desk = world.reindexing()
    desk.parallel.spread = Spread(processes)
    desk.parallel.engine_of = lambda spread, at_once: engine(world, at_once)
    return desk.backfill


def fill(world: JoinedWorld, processes: int = 2) -> Any:
    desk = desk_of(world, processes)
    return desk.run(desk.start((), ALICE, "first load"), ALICE, 0.0)


def writes(world: JoinedWorld) -> int:
    """Every document that the index was given, also one that it had."""
    stats = world.es.indices.stats(index=world.index, metric="indexing")
    return int(stats["_all"]["primaries"]["indexing"]["index_total"])


@pytest.mark.parametrize("rows", [0, 2_000])
def test_a_backfill_in_parts_writes_every_document_once(
    world: JoinedWorld, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(bounds, "PART_DOCUMENTS", 100)
    world.add(rows or 1)
    before, desk = writes(world), desk_of(world, 2)
    run = desk.start((), ALICE, "first load")
    if not rows:
        world.connection.execute("delete from articles")
    done = desk.run(run, ALICE, 0.0)
    assert (done.status, done.written, done.refused) == ("finished", rows, 0)
    assert writes(world) - before == rows, "as many writes as documents"
    assert world.count() == rows
    assert world.drift() == 0
    parts = world.queue.value("select count(*) from search_outbox_rebuild_parts where state = 'done'")
    assert parts >= (8 if rows else 1)


def test_as_many_documents_are_written_as_there_are_whatever_order_their_texts_have(world: JoinedWorld) -> None:
    """1 to 3,000 have two orders, as numbers and as text. Parts that are cut by one and compared by the other overlap
    and leave keys out. Where they only overlap, the index is right: so the writes are counted too."""
    world.add(3_000)
    before = writes(world)
    fill(world, 4)
    assert (writes(world) - before, world.count()) == (3_000, 3_000)


# A rebuild


@pytest.fixture
def rebuilding(queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str) -> RebuildWorld:
    return RebuildWorld(queue, es, elastic_url, absent_index)


def test_a_rebuild_in_parts_is_as_one_without_and_begins_again_with_new_parts(rebuilding: RebuildWorld) -> None:
    rebuilding.fill(700)
    rebuilding.project()
    desk = rebuilding.desk()
    desk.steps.parallel.spread = Spread(2)
    desk.steps.parallel.engine_of = lambda spread, at_once: HereAndNow(rebuilding, at_once)
    ready = rebuilding.start(desk)
    assert (ready.step, ready.written) == ("ready", 700)
    counted = "select count(*) from search_outbox_rebuild_parts where work = 'rebuild' and state = 'done'"
    assert rebuilding.queue.value(counted) >= 8
    assert int(rebuilding.es.count(index=ready.new_index)["count"]) == 700
    desk.steps.rebuilds.give_up(ready, "someone removed it")
    broken = desk.newest()
    assert broken is not None
    again = desk.steps.begin_again(broken)
    assert rebuilding.queue.value(counted) == 0
    assert desk.carry_on(again).written == 700
    assert rebuilding.queue.value(counted) >= 8


# A comparison, by real processes


def spoil(world: JoinedWorld) -> None:
    """Some of each kind of drift, spread over the keys."""
    for id in range(10, 400, 40):
        world.es.delete(index=world.index, id=f"article:{id}")
        world.es.index(index=world.index, id=f"article:{id + 1}", document={"title": "by hand"})
        world.es.index(index=world.index, id=f"article:{10_000 + id}", document={})
    world.es.index(index=world.index, id="what is this", document={})
    world.es.indices.refresh(index=world.index)


def compared(world: JoinedWorld, processes: int, threads: bool = False) -> Any:
    desk = world.reindexing()
    desk.parallel.spread = Spread(processes)
    if threads:
        desk.parallel.engine_of = lambda spread, at_once: HereAndNow(world, at_once)
    return desk.verify.run(VerifyOptions(rate=0))


def test_a_comparison_in_parts_finds_what_one_process_finds(world: JoinedWorld) -> None:
    world.add(400)
    world.fill_index()
    assert compared(world, 2, threads=True).report.drift == 0
    spoil(world)
    alone, together = compared(world, 1), compared(world, 2)
    assert together.report.counts == alone.report.counts
    assert [together.report.counts[kind] for kind in DRIFT] == [10, 0, 10, 10]
    assert together.report.counts[Kind.UNKNOWN] == 1
    assert together.report.compared == alone.report.compared == 400
    for kind in Kind:
        found, known = (sorted(f.id for f in each.report.first[kind]) for each in (together, alone))
        assert found == known
    assert together.report.fields == alone.report.fields
    row = world.connection.execute("select status, missing, orphaned from search_outbox_verifications order by id desc")
    assert row.fetchone() == ("finished", 10, 10)
    assert world.queue.value("select count(*) from search_outbox_rebuild_parts where work = 'verification'") == 0


@pytest.mark.release("real processes, ten seconds each; a rebuild and a comparison by them are in the quick run")
def test_a_plan_of_repairs_in_parts_is_whole_and_keeps_to_its_limit(world: JoinedWorld) -> None:
    world.add(400)
    world.fill_index()
    spoil(world)
    desk = world.reindexing()
    desk.parallel.spread = Spread(2)
    plan = desk.repair.plan(VerifyOptions(rate=0), 1000)
    assert (plan.by_kind, plan.cut) == ({"missing": 10, "stale": 0, "orphaned": 10, "different": 10}, False)
    cut = desk.repair.plan(VerifyOptions(rate=0), 7)
    assert (len(cut.findings), cut.cut) == (7, True)
    desk.repair.write(plan, ALICE, "why", rate=0)
    world.project()
    assert world.drift() == 0
