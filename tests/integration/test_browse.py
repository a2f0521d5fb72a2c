"""Lists and single events as people see them, on real PostgreSQL."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from outbox.app.desk import QueueDesk
from outbox.ops.events import EventPage
from outbox.policy.event import Status
from outbox.policy.inputs import EventFilter, read_event_filter
from outbox.store.schema.migrate import migrate
from tests.fixtures.desks import desk_on
from tests.fixtures.queue import EventTable

EVERY = [str(status) for status in Status]


def asked(**raw: object) -> EventFilter:
    return read_event_filter(raw, datetime.now(UTC))


def walk(desk: QueueDesk, statuses: list[str], limit: int, wanted: EventFilter | None = None) -> list[UUID]:
    """All pages, one after the other."""
    ids: list[UUID] = []
    page = desk.browse.page(wanted or EventFilter(), statuses, limit)
    while True:
        ids += [event.id for event in page.events]
        if not page.next:
            return ids
        assert len(page.events) == limit
        page = desk.browse.page(wanted or EventFilter(), statuses, limit, page.next)


def fill(queue: EventTable) -> dict[str, set[UUID]]:
    """Twenty events of each kind, those of one kind with one and the same time."""
    made = {kind: {queue.produce() for _ in range(20)} for kind in ("fresh", "retry", "suspect", *EVERY[2:])}
    change = {
        "retry": "next_retry_at = now() + interval '1 hour', attempts = 1, error_reason = 'connect'",
        "suspect": "abandoned_count = 1",
        "done": "status = 'done', processed_at = now()",
        "failed": "status = 'failed', failed_at = now(), error_reason = 'too_large'",
        "discarded": "status = 'discarded', processed_at = now()",
    }
    for kind, values in change.items():
        queue.connection.execute(
            f"update search_outbox_events set {values} where id = any (%s)".encode(), [list(made[kind])]
        )
    return made


@pytest.mark.parametrize("limit", [1, 7, 20, 500])
def test_pages_hold_every_event_once_whatever_its_state(queue: EventTable, desk: QueueDesk, limit: int) -> None:
    made = fill(queue)
    ids = walk(desk, EVERY, limit)
    assert len(ids) == len(set(ids)) == 120
    assert set(ids) == set().union(*made.values())


def test_the_one_filter_narrows_every_shelf(queue: EventTable, desk: QueueDesk) -> None:
    made = fill(queue)
    assert set(walk(desk, EVERY, 50, asked(error_reason="too_large"))) == made["failed"]
    assert set(walk(desk, EVERY, 50, asked(failure_type="network"))) == made["retry"]
    assert walk(desk, EVERY, 50, asked(entity_type="author")) == []


def test_an_entity_s_done_upserts_need_their_index_and_the_page_says_so(queue: EventTable, database: str) -> None:
    done, deleted, failed = (queue.produce("e1", op) for op in ("upsert", "delete", "upsert"))
    queue.connection.execute("update search_outbox_events set status = 'done' where id = any (%s)", [[done, deleted]])
    queue.connection.execute("update search_outbox_events set status = 'failed' where id = %s", [failed])

    def find() -> EventPage:
        with desk_on(database) as desk:
            return desk.browse.page(asked(entity_type="article", entity_id="e1"))

    page = find()
    assert {event.id for event in page.events} == {deleted, failed}
    assert "--by-entity" in page.remark
    migrate(database, by_entity=True)
    page = find()
    assert {event.id for event in page.events} == {done, deleted, failed}
    assert page.remark == ""
