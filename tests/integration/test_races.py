"""Settle, heartbeat, release and reclaim of the same rows at once: no deadlock, and every row has one fate."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import DONE, RetryLater, Settlement
from tests.fixtures.queue import EventTable, alive
from tests.fixtures.waiting import PATIENCE_SECONDS

ROUNDS = 25
ROWS = 60


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Run these together; what they return or raise."""
    results: list[Any] = [None] * len(acts)
    start = threading.Barrier(len(acts))

    def run(place: int, act: Callable[[], Any]) -> None:
        start.wait()
        try:
            results[place] = act()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return results


def verdicts(queue: EventTable, token: UUID, mixed: bool) -> list[tuple[UUID, Settlement]]:
    ids = [row.id for row in queue.rows("lease_token = %(token)s", token=token)]
    later = RetryLater(3600.0, Failure(Reason.ES_5XX, "x"))
    return [(id, later if mixed and place % 2 else DONE) for place, id in enumerate(ids)]


@pytest.mark.parametrize("mixed", [False, True], ids=["all done", "mixed verdicts"])
def test_settle_heartbeat_release_and_reclaim_never_deadlock_and_each_row_has_one_fate(
    queue: EventTable, mixed: bool
) -> None:
    """The server's own count of deadlocks is the judge: those that a retry would hide count too."""
    store, reclaims = queue.store(), queue.reclaims()
    for _ in range(ROUNDS):
        queue.produce_many(ROWS)
        claimed = queue.claim(store, limit=ROWS)
        settlements = verdicts(queue, claimed.token, mixed)
        queue.expire(claimed.token)
        results = at_once(
            partial(store.settle, claimed.token, settlements),
            partial(store.renew, claimed.token),
            lambda: reclaims.step(alive),
            partial(store.release, claimed.token),
        )
        assert not [result for result in results if isinstance(result, Exception)]
        settled, _, reclaimed, released = results
        assert settled.kept + reclaimed.rows + released.rows >= ROWS
        queue.connection.execute("delete from search_outbox_events")
        queue.connection.execute("delete from search_outbox_leases")
    assert deadlocks(queue) == 0


def test_four_claimers_at_once_never_take_one_row_twice(queue: EventTable) -> None:
    queue.produce_many(400)
    stores = [queue.store(f"w{n}") for n in range(4)]
    claims = at_once(*(lambda s=s: [queue.claim(s, limit=50) for _ in range(3)] for s in stores))
    ids = [event.id for batches in claims for claimed in batches for event in claimed.events]
    assert len(ids) == len(set(ids)) >= 350
    assert deadlocks(queue) == 0


def test_a_claim_skips_a_row_that_a_person_holds_and_takes_its_neighbours(queue: EventTable, database: str) -> None:
    held = queue.produce("held")
    others = {queue.produce() for _ in range(5)}
    with psycopg.connect(database) as person:
        person.execute("select from search_outbox_events where id = %s for update", [held])
        claimed = queue.claim()
    assert {event.id for event in claimed.events} == others
    assert queue.row(held).status == "pending"


def deadlocks(queue: EventTable) -> int:
    """Flushed from this session's view of the statistics: backends report after each transaction."""
    queue.connection.execute("select pg_stat_clear_snapshot()")
    return int(queue.value("select deadlocks from pg_stat_database where datname = current_database()"))
