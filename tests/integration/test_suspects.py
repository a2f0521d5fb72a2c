"""Rows whose workers die: claimed apart in 50, 5 and 1, failed at the sixth death; the others come back quickly."""

from uuid import UUID

from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable, dead
from tests.fixtures.sinks import MemorySink


def a_worker(queue: EventTable) -> InProcess:
    return InProcess(Parts(queue.store(), MemorySink()))


def die_holding(queue: EventTable, poison: UUID, worker: InProcess) -> tuple[int, bool]:
    """Take batches as a lane does; a worker that holds the poison dies. (batches, whether one died)."""
    batches = 0
    while True:
        taken = worker.claimer.take(0).claimed
        if taken is None:
            return batches, False
        batches += 1
        if any(event.id == poison for event in taken.events):
            queue.expire(taken.token)
            queue.reclaims().step(dead)
            return batches, True
        worker.projector.project(taken, 0)
        worker.clock.passes(1)


def test_one_poisonous_row_among_five_hundred_is_found_in_six_deaths_and_the_others_are_done(queue: EventTable) -> None:
    queue.produce_many(499)
    poison = queue.produce("poison")
    deaths, sizes = 0, []
    for _ in range(10):
        worker = a_worker(queue)
        before = queue.counts().get("done", 0)
        _, died = die_holding(queue, poison, worker)
        deaths += died
        sizes.append(queue.counts().get("done", 0) - before)
        if not died:
            break
    row = queue.row(poison)
    assert deaths == 6
    assert queue.counts() == {"done": 499, "failed": 1}
    assert (row.error_reason, row.error_code, row.dead_reason) == (
        "crash_suspect",
        "OUTBOX_PRECONDITION_FAILED",
        "crash_suspect",
    )
    assert (row.abandoned_count, row.attempts, row.next_retry_at) == (6, 6, None)
    assert "claimed alone" in row.error
    assert row.error_fingerprint
    assert row.error_detail["error"] == {"type": "crash_suspect", "reason": row.error}


def test_a_killed_workers_thousand_rows_are_back_in_twenty_batches(queue: EventTable) -> None:
    queue.produce_many(1_000, abandoned_count=1)
    worker = a_worker(queue)
    batches, died = die_holding(queue, UUID(int=0), worker)
    assert (batches, died) == (20, False)
    assert queue.counts() == {"done": 1_000}
