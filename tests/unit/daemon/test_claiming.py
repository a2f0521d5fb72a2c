"""What a lane takes: suspects neither starve nor hold up the rest, types take turns, pauses are kept."""

from collections import Counter

import pytest

from outbox.daemon.claiming import Kinds
from outbox.ports import Claimed, ClaimOrder
from tests.fakes import MemoryEvents
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.sinks import MemorySink


def a_worker(kinds: Kinds | None = None, batch_size: int = 10) -> tuple[InProcess, MemoryEvents]:
    events = MemoryEvents()
    parts = Parts(events, MemorySink(), kinds=kinds or Kinds(), batch_size=batch_size, index_of=str)
    return InProcess(parts), events


def by_type(*names: str, **values: object) -> Kinds:
    return Kinds(always=True, indexed=True, open=names, **values)  # type: ignore[arg-type]


def taken(worker: InProcess, lane: int = 0) -> str | None:
    """The type of the next batch, `?` before it when it is one of suspects."""
    claimed = worker.claimer.take(lane).claimed
    if claimed is None:
        return None
    return ("?" if claimed.order.suspects else "") + claimed.events[0].entity_type


@pytest.mark.parametrize("names", [["article"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]])
def test_suspects_of_every_type_are_claimed_while_fresh_rows_of_all_types_wait(names: list[str]) -> None:
    worker, events = a_worker(by_type(*names) if len(names) > 1 else None)
    for name in names:
        for _ in range(2_000):
            events.queue.produce("x", entity_type=name)
        events.queue.produce("s", entity_type=name, abandoned_count=1)
    seen: Counter[str | None] = Counter()
    for _ in range(40):
        seen[taken(worker)] += 1
        worker.clock.passes(1)
    assert all(seen[f"?{name}"] == 1 for name in names), seen
    assert all(seen[name] >= 5 for name in names), seen


def test_suspects_hold_up_at_most_every_other_batch_of_one_lane() -> None:
    worker, events = a_worker()
    for number in range(400):
        events.queue.produce("x", abandoned_count=3 if number % 2 else 0)
    assert [taken(worker) for _ in range(6)] == ["?article", "article", "?article", "article", "?article", "article"]
    assert [taken(worker, lane=1) for _ in range(3)] == ["article"] * 3


def test_nothing_is_sent_when_the_machine_slept_between_the_claim_and_its_reply() -> None:
    """The lease ran meanwhile, others have the rows: to believe in a whole lease would bring deleted documents back."""
    worker, events = a_worker()
    id = events.queue.produce("x")
    claim = events.claim

    def asleep(order: ClaimOrder) -> Claimed:
        claimed = claim(order)
        worker.clock.passes(600.0 if claimed.events else 0.0)
        return claimed

    events.claim = asleep  # type: ignore[method-assign]
    worker.lane.step()
    assert worker.parts.sink.documents == {}  # type: ignore[attr-defined]
    assert events.queue.rows[id].status == "pending"
