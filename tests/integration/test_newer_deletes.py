"""Nothing deleted comes back: Elasticsearch forgets a delete's version, PostgreSQL does not."""

from typing import Any
from uuid import UUID

import pytest
from elasticsearch import Elasticsearch

from outbox.facts import LeaseLost
from outbox.ports import BulkAction
from tests.fixtures.elasticsearch import INDEX_SETTINGS
from tests.fixtures.events import Time
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable, alive, dead
from tests.fixtures.sinks import Hooked, MemorySink, elastic_sink
from tests.fixtures.waiting import eventually

KEY = ("articles", "article:a")


@pytest.fixture
def sink() -> Hooked:
    return Hooked()


def a_worker(queue: EventTable, sink: MemorySink, name: str = "w1", clock: Time | None = None) -> InProcess:
    return InProcess(Parts(queue.store(name), sink, clock=clock or Time()))


def delete_is_done_and_forgotten(
    queue: EventTable, sink: MemorySink, meanwhile: InProcess | None = None, **values: object
) -> None:
    """It takes a minute to be forgotten; by the clock of whoever has an upsert on its way meanwhile."""
    if meanwhile is not None:
        meanwhile.clock.passes(61)
    other = a_worker(queue, sink, "other")
    queue.produce("a", "delete", **values)
    other.run()
    sink.forget_deletes()


def replay(queue: EventTable, id: UUID) -> None:
    queue.connection.execute(
        "update search_outbox_events set status = 'pending', failed_at = null, attempts = 0,"
        " replay_count = replay_count + 1 where id = %s",
        [id],
    )


def test_an_upsert_that_was_reclaimed_does_not_bring_back_what_a_newer_delete_removed(
    queue: EventTable, sink: Hooked
) -> None:
    upsert = queue.produce("a")
    held = queue.claim()
    delete_is_done_and_forgotten(queue, sink)
    queue.expire(held.token)
    queue.reclaims().step(dead)
    worker = a_worker(queue, sink)
    worker.run(suspects=1)
    assert sink.documents == {}
    assert queue.row(upsert).status == "done"
    assert worker.last.superseded == 1


@pytest.mark.parametrize("created", ["-31 seconds", "2 hours", "infinity", "-infinity"])
def test_nor_does_a_late_commit_that_meets_an_idle_process(queue: EventTable, sink: Hooked, created: str) -> None:
    """Never claimed before, above all that this process has seen: only its age tells, or that it tells nothing."""
    at = created if created.endswith("infinity") else queue.value("select now() + %s::interval", created)
    idle = a_worker(queue, sink, "idle")
    idle.clock.passes(100)
    delete_is_done_and_forgotten(queue, sink, event_version=100)
    late = queue.produce("a", event_version=50, created_at=at)
    idle.run()
    status = queue.value("select status from search_outbox_events where id = %s", late)
    assert (sink.documents, status) == ({}, "done")
    assert idle.last.superseded == 1


def test_nor_does_one_that_was_given_back_and_meets_a_process_that_has_claimed_nothing_yet(
    queue: EventTable, sink: Hooked
) -> None:
    """Its attempt was returned and it is young: only its last token tells."""
    upsert = queue.produce("a")
    idle = a_worker(queue, sink, "idle")
    store = queue.store()
    held = queue.claim(store)
    delete_is_done_and_forgotten(queue, sink)
    store.release(held.token)
    idle.run()
    assert (sink.documents, queue.row(upsert).status) == ({}, "done")


def test_a_delete_that_was_settled_while_the_upsert_was_on_its_way_is_sent_again(
    queue: EventTable, sink: Hooked
) -> None:
    """A machine that slept: the process is old, the row was fresh, and the tombstone is gone meanwhile."""
    queue.produce("a")
    worker = a_worker(queue, sink)
    sink.before = lambda: delete_is_done_and_forgotten(queue, sink, worker)
    worker.run(1)
    assert sink.documents == {}
    assert queue.counts() == {"done": 2}
    assert worker.last.superseded == 1


def test_a_delete_that_was_applied_and_waits_for_its_settle_is_sent_again(queue: EventTable, sink: Hooked) -> None:
    """The database was down for its worker for longer than Elasticsearch remembers; when it is back that worker only
    settles."""
    queue.produce("a")
    worker, other = a_worker(queue, sink), a_worker(queue, sink, "other")

    def applied_and_forgotten() -> None:
        queue.produce("a", "delete")
        (delete,) = other.claim().events
        MemorySink.write(sink, [BulkAction(*KEY, delete.event_version, None, None)], 1.0)
        worker.clock.passes(61)
        sink.forget_deletes()

    sink.before = applied_and_forgotten
    worker.run(1)
    assert sink.documents == {}
    assert queue.counts() == {"done": 1, "processing": 1}
    assert worker.last.superseded == 1


def test_a_worker_that_lost_its_lease_still_undoes_what_it_wrote_too_late(queue: EventTable, sink: Hooked) -> None:
    """The lease is gone and names no rows any more; the zombie's own write must be taken back all the same."""
    queue.produce("a")
    zombie = a_worker(queue, sink)

    def stopped() -> None:
        queue.expire()
        queue.reclaims().step(alive)
        delete_is_done_and_forgotten(queue, sink, zombie)

    sink.before = stopped
    zombie.run(1)
    assert sink.documents == {}
    assert [fact.count for fact in zombie.of(LeaseLost)] == [1]


def test_a_zombie_whose_lease_was_taken_away_in_part_does_so_too(queue: EventTable, sink: Hooked) -> None:
    queue.produce("a")
    queue.produce("b")
    zombie = a_worker(queue, sink)

    def stopped() -> None:
        queue.expire()
        queue.reclaims(rows_a_step=1).step(alive)
        delete_is_done_and_forgotten(queue, sink, zombie)

    sink.before = stopped
    zombie.run(2)
    assert KEY not in sink.documents


def test_a_delete_under_another_routing_is_of_another_document(queue: EventTable, sink: Hooked) -> None:
    """Moved from b to a: the new document first, then the delete of the old one. The new one must live."""
    upsert = queue.produce("a", routing="a")
    store = queue.store()
    held = queue.claim(store)
    delete_is_done_and_forgotten(queue, sink, routing="b")
    store.release(held.token)
    worker = a_worker(queue, sink)
    worker.run()
    assert KEY in sink.documents
    assert (queue.row(upsert).status, worker.last.superseded) == ("done", 0)


def test_a_newer_delete_of_the_same_version_is_newer_by_its_seq(queue: EventTable, sink: Hooked) -> None:
    upsert = queue.produce("a", event_version=5, status="failed")
    delete_is_done_and_forgotten(queue, sink, event_version=5)
    replay(queue, upsert)
    a_worker(queue, sink).run()
    assert sink.documents == {}


def test_fresh_upserts_cost_no_check_at_all(queue: EventTable, sink: Hooked) -> None:
    worker = a_worker(queue, sink)
    queue.produce_many(3)
    queue.connection.execute("drop index search_outbox_events_delete_hash_idx")
    worker.store.newer_deletes = None  # type: ignore[assignment]
    worker.run()
    assert queue.counts() == {"done": 3}


def test_on_the_real_server_with_tombstones_kept_for_a_second(
    queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str
) -> None:
    """The measured row of the list: index v3 after delete v9, 2.5 s later, is 201 created. Not through us."""
    es.indices.create(index=absent_index, settings={**INDEX_SETTINGS, "gc_deletes": "1s", "refresh_interval": "100ms"})
    with elastic_sink(elastic_url) as sink:

        def worker() -> InProcess:
            return InProcess(Parts(queue.store(), sink, index_of=lambda _: absent_index))

        reclaimed, replayed = queue.produce("a"), queue.produce("b", status="failed")
        held = queue.claim(limit=1)
        queue.produce("a", "delete")
        queue.produce("b", "delete")
        worker().run()
        eventually(lambda: forgotten(es, absent_index), every=0.3, what="tombstones to be forgotten")
        queue.expire(held.token)
        queue.reclaims().step(dead)
        replay(queue, replayed)
        worker().run(suspects=1)
        worker().run()
    assert {queue.row(reclaimed).status, queue.row(replayed).status} == {"done"}
    found = es.mget(index=absent_index, ids=["article:a", "article:b"], realtime=True)["docs"]
    assert [doc["found"] for doc in found] == [False, False]


def forgotten(es: Elasticsearch, index: str) -> bool:
    """A canary that was deleted before: an old version gets through once the server forgets deletes."""
    options: dict[str, Any] = {"version_type": "external_gte", "id": "canary", "index": index}
    if not es.options(ignore_status=[404, 409]).indices.stats(index=index)["_all"]["total"]["indexing"]["delete_total"]:
        return False
    if not getattr(forgotten, index, False):
        es.options(ignore_status=404).delete(version=9, **options)
        setattr(forgotten, index, True)
        return False
    return bool(es.options(ignore_status=409).index(version=3, document={}, **options).meta.status == 201)
