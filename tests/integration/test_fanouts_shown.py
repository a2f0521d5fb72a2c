"""Fan-outs in status, lists, pages and metrics; what people do with them; and that no entity has one."""

from uuid import UUID

import pytest

from outbox.app.desk import QueueDesk
from outbox.policy.drift import Key
from outbox.store.entity_events import EntityEvents
from outbox.store.schema.migrate import migrate
from tests.fixtures.commands import Outbox
from tests.fixtures.queue import EventTable


def fan_out(queue: EventTable, key: str = "7", written: int | None = None, cursor: str | None = None) -> UUID:
    return queue.produce(
        key, op="fanout", fanout_attachment=42, fanout_keys="[{}]", fanout_written=written, fanout_cursor=cursor
    )


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
