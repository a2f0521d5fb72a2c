"""What a process keeps does not grow with the entities, errors or versions that it has met."""

import gc
from collections import deque
from collections.abc import Iterator
from typing import Any

from outbox.policy.backoff import Backoff
from outbox.policy.outcome import Code, Failure, Outcome, Reason, Stale
from outbox.policy.settle import RetryPolicy
from outbox.ports import BulkAction
from tests.fakes import MemoryEvents
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.sinks import MemorySink

ENTITIES = 10_000  # a quarter of them, by each way, is more than the largest bound
MOST = 2_000  # the largest bound of ours is 1,000


def answer(action: BulkAction) -> Outcome | None:
    """A quarter each: done, refused with an error of its own, busy, ahead of us."""
    n = int(action.id.partition(":")[2])
    match n % 4:
        case 0:
            return Failure(Reason.ES_REJECTED_DOCUMENT, f"no {n}", Code.PAYLOAD_INVALID, f"fingerprint {n}")
        case 1:
            return Failure(Reason.ES_429, f"busy {n}")
        case 2:
            return Stale(10**9 + n)
        case _:
            return None


def containers(thing: Any, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Every container that objects of ours hold on to, with its size; the store and the sink are fakes here."""
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, MemoryEvents, MemorySink, type(None))):
        return
    seen.add(id(thing))
    if isinstance(thing, (dict, list, set, frozenset, tuple, deque)):
        yield path, len(thing)
        inner = thing.items() if isinstance(thing, dict) else enumerate(thing)
        for name, each in inner:
            yield from containers(each, f"{path}[{name if isinstance(thing, dict) else ''}]", seen)
    elif type(thing).__module__.startswith("outbox."):
        names = {*getattr(thing, "__dict__", ()), *(n for kind in type(thing).__mro__ for n in _slots(kind))}
        for name in sorted(names):
            yield from containers(getattr(thing, name, None), f"{path}.{name}", seen)


def _slots(kind: type) -> tuple[str, ...]:
    found = vars(kind).get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def test_no_container_of_a_process_grows_with_the_entities_it_has_met() -> None:
    events, sink = MemoryEvents(), MemorySink()
    sink.refuse = answer  # type: ignore[assignment]
    worker = InProcess(Parts(events, sink, retry=RetryPolicy(2, Backoff(1.0, 300.0))))
    for n in range(ENTITIES):
        events.queue.produce(str(n), event_version=n)
    while worker.run(500):
        worker.clock.passes(1.0)
        worker.facts.clear()
    parts = ("lane", "judge", "brake", "limits", "leases")
    sizes = [found for name in parts for found in containers(getattr(worker, name), name, set())]
    assert len(sizes) > 10, "nothing was checked"
    assert [found for found in sizes if found[1] > MOST] == []


def test_a_batch_leaves_nothing_to_the_garbage_collector() -> None:
    """A daemon's collector comes after 50,000 objects: 500 ids per batch that wait for it are megabytes."""
    events, sink = MemoryEvents(), MemorySink()
    worker = InProcess(Parts(events, sink))
    for n in range(1_500):
        events.queue.produce(str(n), event_version=n)
    worker.run(500)
    gc.collect()
    gc.disable()
    try:
        assert worker.run(500) is not None
        assert gc.collect() == 0
    finally:
        gc.enable()
