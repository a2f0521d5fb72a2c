"""Limits by entity type over all workers: most in flight, events per second, and what they cost the others."""

import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from outbox.daemon.claiming import Kinds
from outbox.policy.settle import DONE
from outbox.ports import Claimed, ClaimOrder
from outbox.store.events import PostgresEvents
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable, order
from tests.fixtures.sinks import MemorySink
from tests.fixtures.waiting import PATIENCE_SECONDS

BY_TYPE = Path(__file__).parents[2] / "sql" / "optional" / "by_type.sql"


@pytest.fixture(autouse=True)
def twins(queue: EventTable) -> None:
    """The indexes of `outbox migrate --by-type`."""
    for statement in BY_TYPE.read_text(encoding="utf-8").split(";"):
        if "create index" in statement:
            queue.connection.execute(statement.encode())


def limited(store: PostgresEvents, limit: int = 100, kind: str = "article", **values: int) -> Claimed:
    return store.claim_within_quota(order(limit, entity_type=kind, **values))


def finish(store: PostgresEvents, claimed: Claimed) -> None:
    store.settle(claimed.token, [(event.id, DONE) for event in claimed.events])


def in_flight(queue: EventTable, kind: str = "article") -> int:
    return int(
        queue.value("select count(*) from search_outbox_events where status = 'processing' and entity_type = %s", kind)
    )


def test_a_claim_takes_at_most_what_is_left_of_the_limit_over_all_workers(queue: EventTable) -> None:
    queue.produce_many(100)
    one, two = queue.store("w1"), queue.store("w2")
    one.put_quota("article", 5, None)
    first = limited(one, 3)
    second = limited(two, 100)
    assert (len(first.events), len(second.events)) == (3, 2)
    assert limited(one).events == ()
    finish(one, first)
    assert len(limited(two).events) == 3
    assert in_flight(queue) == 5


def test_many_workers_at_once_never_have_more_in_flight_than_the_limit(queue: EventTable) -> None:
    """The lock comes in a statement of its own: only the next one's snapshot sees what the last holder took."""
    queue.produce_many(600)
    queue.store().put_quota("article", 5, None)
    highest, stop = 0, threading.Event()
    done = [0] * 6

    def work(number: int) -> None:
        store = queue.store(f"w{number}")
        while not stop.is_set():
            claimed = limited(store, 4)
            done[number] += len(claimed.events)
            finish(store, claimed)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    queue.pool(size=8)
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(done) < 600 and time.monotonic() < deadline:
        highest = max(highest, in_flight(queue))
    stop.set()
    for thread in threads:
        thread.join()
    assert sum(done) == 600
    assert 1 <= highest <= 5


def test_a_rate_is_a_bucket_that_fills_by_the_databases_clock_and_holds_one_second(queue: EventTable) -> None:
    queue.produce_many(1_000)
    store = queue.store()
    store.put_quota("article", None, 50.0)
    first = limited(store)
    assert len(first.events) == 50
    assert limited(store).events in ((), []) or len(limited(store).events) <= 5
    queue.connection.execute("update search_outbox_quotas set refilled_at = now() - interval '0.5 seconds', tokens = 0")
    assert 24 <= len(limited(store).events) <= 30
    queue.connection.execute("update search_outbox_quotas set refilled_at = now() - interval '1 hour', tokens = 0")
    assert len(limited(store, 500).events) == 50


def test_a_type_without_a_quota_row_is_claimed_as_if_there_were_none(queue: EventTable) -> None:
    queue.produce_many(10)
    assert len(limited(queue.store()).events) == 10


def test_a_limited_type_ahead_of_all_others_does_not_hold_them_up(queue: EventTable) -> None:
    queue.produce_many(2_000, entity_type="slow")
    queue.produce_many(1_000, entity_type="fast")
    store = queue.store()
    store.put_quota("slow", 5, None)
    kinds = Kinds(always=True, indexed=True, open=["fast", "slow"], limited=lambda kind: kind == "slow")
    worker = InProcess(Parts(store, MemorySink(), kinds=kinds))
    for _ in range(6):
        worker.lane.step()
    done = dict(
        queue.connection.execute(
            "select entity_type, count(*) from search_outbox_events where status = 'done' group by 1"
        ).fetchall()
    )
    assert done["fast"] == 1_000
    assert done["slow"] <= 6 * 5


def test_open_types_are_found_by_their_fresh_waiting_and_suspect_rows(queue: EventTable) -> None:
    queue.produce(entity_type="fresh")
    queue.produce(entity_type="waiting", next_retry_at="2999-01-01")
    queue.produce(entity_type="suspect", abandoned_count=2)
    queue.produce(entity_type="done", status="done")
    queue.produce(entity_type="failed", status="failed")
    assert sorted(queue.store().open_types()) == ["fresh", "suspect", "waiting"]


def test_a_claim_of_one_type_takes_its_due_retries_and_fresh_rows_only(queue: EventTable) -> None:
    queue.produce("a", entity_type="x", next_retry_at="2020-01-01")
    queue.produce("b", entity_type="x")
    queue.produce("c", entity_type="y")
    queue.produce("d", entity_type="x", abandoned_count=1)
    claimed = queue.store().claim(ClaimOrder(uuid4(), 10, 10, entity_type="x"))
    assert sorted(event.entity_id for event in claimed.events) == ["a", "b"]
