"""Which clock each part of a daemon has, wired as `outbox run` wires it: what estimates how much of a lease is left has
the one that goes on while the machine sleeps."""

import gc
import time
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from outbox.daemon import lease
from outbox.daemon.lease import boottime
from outbox.daemon.lifecycle import Lifecycle
from outbox.ports import Claimed, ClaimOrder
from outbox.store.events import PostgresEvents
from tests.fixtures.queue import EventTable
from tests.fixtures.wired import Wire

TABLE: dict[str, str] = {}
KAFKA = {"OUTBOX_SOURCE": "kafka", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "KAFKA_TOPIC": "events"}
# What counts a lease, or from a time of the database's clock.
BOOT_CLOCK = {"Claimer", "Declarations", "Leases", "SecondTarget", "SourceTime"}
# What measures how long something took or waits for its turn, here, while the machine is awake.
OTHER_CLOCK = {
    "BacklogSampler", "Beats", "Debounced", "ElasticSink", "Health", "Brake", "Lane", "Lookups", "Orders",
    "Partitions", "PauseGate", "Pruner", "Reclaimer", "Rarely", "ReplayChore", "StreamReader", "Suspects",
    "Targets", "Underway", "Upkeep", "ViewDocuments", "_PacedQuery",
}  # fmt: skip


def reachable(start: object) -> Iterator[Any]:
    """Every object that the daemon's parts refer to, also by closures; not what its modules hold."""
    seen: dict[int, object] = {}  # with the objects: an id is another object's as soon as its own is gone
    waiting = [start]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType):
            continue
        seen[id(one)] = one
        yield one
        if isinstance(one, FunctionType):
            waiting += [one.__closure__, one.__defaults__, one.__kwdefaults__]
        else:
            waiting += gc.get_referents(one)


def clocks(worker: Lifecycle) -> dict[str, set[object]]:
    """By class: the clocks of its instances."""
    found: dict[str, set[object]] = {}
    for part in reachable(worker):
        for name in ("clock", "_clock", "boot_clock"):
            if type(part).__module__.startswith("outbox.") and (clock := getattr(part, name, None)) is not None:
                found.setdefault(type(part).__name__, set()).add(clock)
    return found


@pytest.mark.parametrize("source", [TABLE, KAFKA], ids=["table", "kafka"])
def test_every_part_that_counts_a_lease_has_the_boot_clock(wire: Wire, source: dict[str, str]) -> None:
    found = clocks(wire(**source))
    assert set(found) >= BOOT_CLOCK - (set() if source else {"SourceTime"})
    assert {name: found[name] for name in BOOT_CLOCK if found.get(name, {boottime}) != {boottime}} == {}
    unknown = set(found) - BOOT_CLOCK - OTHER_CLOCK
    assert not unknown, f"does {unknown} estimate a lease? Then it needs `boottime`. Name it in a list above."


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`sleep(seconds)`: the machine was suspended for so long. `time.monotonic` does not know it."""
    read, slept = time.clock_gettime, [0.0]
    monkeypatch.setattr(time, "clock_gettime", lambda id: read(id) + (slept[0] if id == lease._CLOCK else 0.0))
    return lambda seconds: slept.append(slept.pop() + seconds)


def test_a_daemon_whose_machine_slept_after_its_claim_sends_nothing_of_it(
    wire: Wire,
    queue: EventTable,
    es: Elasticsearch,
    index: str,
    sleep: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its lease of a minute is over by the database's clock: another worker may be at these rows. The next claim is
    dated and counted by one clock, so it goes on."""
    lane = wire().lanes[0]
    id = queue.produce("1")
    naps = [3600.0]
    claim = PostgresEvents.claim

    def claim_and_sleep(store: PostgresEvents, order: ClaimOrder) -> Claimed:
        claimed = claim(store, order)
        if claimed.events and naps:
            sleep(naps.pop())
        return claimed

    monkeypatch.setattr(PostgresEvents, "claim", claim_and_sleep)
    lane.step()
    assert naps == []
    assert not es.exists(index=index, id="article:1")
    assert (queue.row(id).status, queue.row(id).attempts) == ("pending", 0)
    lane.step()
    assert queue.row(id).status == "done"
    assert es.exists(index=index, id="article:1")
