"""Claims on real PostgreSQL: order, retries apart, large payloads, what a claim writes, races with other writers."""

import json
import threading
from uuid import uuid4

import psycopg
import pytest

from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import RetryLater
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import eventually

LATER = RetryLater(3600.0, Failure(Reason.ES_5XX, "x"))


def test_a_claim_writes_the_row_and_one_lease_for_the_batch(queue: EventTable) -> None:
    id = queue.produce("a")
    queue.produce("b", entity_type="author")
    start = uuid4()
    claimed = queue.claim(queue.store("w7", lease_seconds=60, start_id=start))
    row = queue.row(id)
    assert (row.status, row.owner, row.lease_token, row.attempts) == ("processing", "w7", claimed.token, 1)
    assert 55 < (row.lease_until - row.processing_started_at).total_seconds() <= 61
    assert row.last_attempt_at is not None
    (lease,) = queue.connection.execute(
        "select token, owner, start_id, cardinality(ids), counts from search_outbox_leases"
    ).fetchall()
    assert lease == (claimed.token, "w7", start, 2, {"article": 1, "author": 1})


def test_due_retries_take_at_most_their_share_and_fresh_rows_fill_the_rest(queue: EventTable) -> None:
    store = queue.store()
    for _ in range(10):
        queue.produce()
    first = queue.claim(store)
    store.settle(first.token, [(event.id, LATER) for event in first.events])
    for _ in range(10):
        queue.produce()
    queue.make_due()
    batch = queue.claim(store, limit=10, retry_limit=4)
    assert sorted(event.attempts for event in batch.events) == [1] * 6 + [2] * 4
    rest = queue.claim(store, limit=100, retry_limit=100)
    assert sorted(event.attempts for event in rest.events) == [1] * 4 + [2] * 6


@pytest.mark.parametrize("storage", ["plain text", "compressed", "out of line"])
def test_small_payloads_come_with_the_claim_and_large_ones_later_however_they_are_stored(
    queue: EventTable, storage: str
) -> None:
    how = {"plain text": "plain", "compressed": "main", "out of line": "external"}[storage]
    queue.connection.execute(f"alter table search_outbox_events alter column payload set storage {how}".encode())
    sizes = [1_000, 6_000] if storage == "plain text" else [1_000, 60_000, 65_535, 65_536, 200_000]
    texts = {str(size): json.dumps({"t": "xy" * ((size - 9) // 2) + "z" * ((size - 9) % 2)}) for size in sizes}
    for name, text in texts.items():
        assert len(text) == int(name)
        queue.produce(name, payload=text)
    for event in queue.claim(limit=10).events:
        size = int(event.entity_id)
        assert event.payload_bytes is not None
        assert abs(event.payload_bytes - size) <= 4
        assert (event.payload is None) is (size >= 65_536)
        assert event.payload in (None, texts[event.entity_id].encode())
        assert queue.store().payloads([event.id])[event.id] == texts[event.entity_id].encode()


def test_rows_that_are_touched_while_they_are_claimed_are_taken_once_or_stay_pending(
    queue: EventTable, database: str
) -> None:
    """An UPDATE changes the ctid of a row between our read and our lock: skipped, pending, and found next time."""
    queue.produce_many(2_000)
    stop = threading.Event()
    touched = 0

    def touch() -> None:
        nonlocal touched
        with psycopg.connect(database, autocommit=True) as person:
            while not stop.is_set():
                for start in range(0, 2_000, 40):
                    person.execute(
                        "update search_outbox_events set tracestate = 'touched' where seq between %s and %s",
                        [start, start + 39],
                    )
                    touched += 1

    thread = threading.Thread(target=touch)
    thread.start()
    taken: list[object] = []
    eventually(lambda: touched > 5, what="someone touching rows")

    def all_taken() -> bool:
        taken.extend(event.id for event in queue.claim(limit=50).events)
        return len(taken) >= 2_000

    try:
        eventually(all_taken, every=0.0, what="every row to be claimed")
    finally:
        stop.set()
        thread.join()
    assert len(taken) == len(set(taken)) == 2_000
    assert queue.counts() == {"processing": 2_000}
    orphans = (
        "select count(*) from search_outbox_events e where not exists"
        " (select from search_outbox_leases l where l.token = e.lease_token and e.id = any (l.ids))"
    )
    assert queue.value(orphans) == 0
