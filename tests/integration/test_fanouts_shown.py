"""Fan-outs in status, lists, pages and metrics; what people do with them; and that no entity has one."""

from typing import Any
from uuid import UUID

import pytest

from outbox.app.desk import QueueDesk
from outbox.facts import FannedOut
from outbox.ops.status import in_fanouts
from outbox.policy.drift import Key
from outbox.store.backlog import PostgresBacklog
from outbox.store.entity_events import EntityEvents
from outbox.store.schema.migrate import migrate
from outbox.telemetry.backlog import BacklogSampler
from outbox.telemetry.metrics import Metrics, new_registry
from tests.fixtures.commands import Outbox
from tests.fixtures.console import Served
from tests.fixtures.queue import EventTable


def fan_out(queue: EventTable, key: str = "7", written: int | None = None, cursor: str | None = None) -> UUID:
    return queue.produce(
        key, op="fanout", fanout_attachment=42, fanout_keys="[{}]", fanout_written=written, fanout_cursor=cursor
    )


def test_status_counts_open_and_failed_ones_their_progress_and_what_waits(queue: EventTable, desk: QueueDesk) -> None:
    assert in_fanouts(desk.status.read().fanouts) == ""
    first = fan_out(queue, written=1_000, cursor="k500")
    fan_out(queue, "8", written=234)
    failed = fan_out(queue, "9")
    for _ in range(3):
        queue.produce(op="refresh", fanout_id=first)
    queue.connection.execute("update search_outbox_events set status = 'failed' where id = %s", [failed])
    queue.connection.execute(
        "update search_outbox_events set created_at = now() - interval '1 hour' where id = %s", [first]
    )
    found = desk.status.read().fanouts
    assert (found.open, found.written, found.failed, found.refreshes_open) == (2, 1_234, 1, 3)
    assert found.oldest_age_seconds == pytest.approx(3600, abs=60)
    told = in_fanouts(found)
    assert told.startswith("2 open, the oldest 60 min old, 1,234 refreshes written so far")
    assert told.endswith("3 of their refreshes wait; 1 failed")


def test_the_sampler_and_the_worker_tell_the_metrics(queue: EventTable) -> None:
    id = fan_out(queue)
    queue.produce(op="refresh", fanout_id=id)
    registry = new_registry()
    metrics = Metrics("p", registry)
    BacklogSampler(PostgresBacklog(queue.pool()), metrics.handle).sample()
    metrics.handle(FannedOut(id, "article", "public.authors", 500, last=False))
    metrics.handle(FannedOut(id, "article", "public.authors", 1, last=True))
    names = ("outbox_fanouts_open", "outbox_fanout_refreshes_open", "outbox_fanout_refreshes_total")
    assert [registry.get_sample_value(name, {"projection": "p"}) for name in names] == [1, 1, 501]


def test_the_sample_of_fan_outs_reads_their_own_indexes(queue: EventTable) -> None:
    """20,000 other open events are not read for it."""
    queue.produce_many(20_000)
    fan_out(queue)
    queue.connection.execute("analyze search_outbox_events")
    with queue.connection.transaction():
        queue.connection.execute("set local enable_seqscan = off")
        queue.connection.execute("set local enable_bitmapscan = off")
        query = queue_sample()
        plan = "\n".join(row[0] for row in queue.connection.execute(query, {"head": 10_000, "most": 10_000}))
    assert "fanout_idx" in plan
    assert "fanned_idx" in plan
    assert "fresh_idx" not in plan


def queue_sample() -> bytes:
    from outbox.store.queries import queries

    return f"explain {queries('inspection')['sample_fanouts']}".encode()


@pytest.mark.parametrize("how", ["replay", "by hand"])
def test_who_opens_a_fan_out_again_makes_it_start_again(queue: EventTable, outbox_here: Outbox, how: str) -> None:
    id = fan_out(queue, written=1_000, cursor="k500")
    queue.connection.execute("update search_outbox_events set status = 'failed' where id = %s", [id])
    assert queue.row(id).fanout_written == 1_000
    if how == "by hand":
        queue.connection.execute("update search_outbox_events set status = 'pending' where id = %s", [id])
    else:
        said = ("--by", "alice", "--reason", "query fixed", "--yes")
        assert outbox_here("replay", "--id", str(id), *said).code == 0
    row = queue.row(id)
    assert (row.status, row.fanout_cursor, row.fanout_written) == ("pending", None, None)
    assert row.fanout_attachment == 42


def test_a_fan_out_that_is_released_or_reclaimed_goes_on_where_it_was(queue: EventTable) -> None:
    id = fan_out(queue, written=1_000, cursor="k500")
    claimed = queue.claim()
    queue.store().release(claimed.token)
    row = queue.row(id)
    assert (row.status, row.fanout_cursor, row.fanout_written) == ("pending", "k500", 1_000)
    queue.expire(queue.claim().token)
    assert queue.reclaims().step(lambda _: True).rows == 1
    row = queue.row(id)
    assert (row.status, row.fanout_cursor, row.fanout_written) == ("pending", "k500", 1_000)


def test_fan_outs_are_pruned_by_age_and_keep_nothing(queue: EventTable, outbox_here: Outbox) -> None:
    kept = queue.produce("7")
    gone = fan_out(queue, "7")
    queue.connection.execute("update search_outbox_events set status = 'done'")
    queue.connection.execute("update search_outbox_events set processed_at = now() - interval '9 days'")
    done = outbox_here("prune", "--older-than-days", "7", "--by", "alice", "--yes")
    assert done.code == 0, done.err
    assert [row.id for row in queue.rows()] == [kept]
    assert queue.row(gone) is None


def test_the_key_of_a_fan_out_is_no_entity(queue: EventTable, desk: QueueDesk) -> None:
    """It failed, is open or is done: of the document with the same id it says nothing."""
    own = queue.produce("7")
    done, failed = fan_out(queue), fan_out(queue)
    queue.connection.execute("update search_outbox_events set status = 'done' where id = any (%s)", [[own, done]])
    queue.connection.execute("update search_outbox_events set status = 'failed' where id = %s", [failed])
    entity = Key("article", "7")
    for by_entity in (False, True):
        if by_entity:
            migrate(queue.url, by_entity=True)
        events = EntityEvents(queue.pool())
        assert events.by_entity is by_entity
        assert events.failed_of([entity]) == {}
        assert events.open_of([entity]) == frozenset()
        assert desk.browse.show(own).related == []
    assert [event.entity_id for event in queue.store().lately_done(["article"], 10)] == ["7"]
    queue.connection.execute("delete from search_outbox_events where id = %s", [own])
    assert queue.store().lately_done(["article"], 10) == []
    assert desk.browse.show(done).related == ()


def test_while_a_fan_out_is_open_every_entity_of_its_type_may_have_an_event_to_come(queue: EventTable) -> None:
    """A comparison must not call stale what the fan-out is about to refresh."""
    fan_out(queue)
    entities = [Key("article", "1"), Key("article", "2"), Key("author", "1")]
    for by_entity in (False, True):
        if by_entity:
            migrate(queue.url, by_entity=True)
        assert EntityEvents(queue.pool()).open_of(entities) == {entities[0], entities[1]}


def test_the_console_shows_fan_outs_and_what_is_not_attached(queue: EventTable, console: Served) -> None:
    id = fan_out(queue, written=1_000, cursor="k500")
    refresh = queue.produce("k1", op="refresh", fanout_id=id)
    told: dict[str, Any] = console.client.get("/api/v1/ops").json()
    assert (told["fanouts"]["open"], told["fanouts"]["written"], told["fanouts"]["refreshes_open"]) == (1, 1_000, 1)
    assert told["unattached"] == []
    assert "1,000 refreshes written so far" in console.client.get("/ops/queue/system").text
    assert "1,000 refreshes written, up to k500" in console.client.get("/ops/queue/events").text
    page = console.client.get(f"/ops/queue/events/{id}").text
    assert "attachment 42: 1,000 refreshes written, up to k500" in page
    assert "A fan-out is no event of a document" in page
    assert f"/ops/queue/events/{id}" in console.client.get(f"/ops/queue/events/{refresh}").text
