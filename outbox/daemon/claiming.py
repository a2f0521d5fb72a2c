"""Takes a lane's next batch: the gate says whether, `Orders` what a claim asks for, `SharedLimit` how many, the store
gives rows. Projects nothing."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from outbox.daemon.gate import EVERYTHING, PauseGate
from outbox.facts import Announce, BatchClaimed, LimitChanged
from outbox.ports import Claimed, ClaimOrder, Clock, EventStore, WriteReport

SUSPECT_BATCH: Final = {1: 50, 2: 5, 3: 1}  # abandoned that often -> claimed so many at a time
SUSPECT_PAUSE_SECONDS: Final = 1.0
FARTHEST_STEP: Final = 1_000_000  # of the floor by one claim; when others have taken more than that, the timer follows


@dataclass(slots=True)
class Floor:
    """Skips dead index entries while someone pins the horizon: a claim from 0 took 170 ms, one from here 0.3 ms.

    Only the timer goes back to 0, one lane per process: this finds late commits with a lower seq and rows set by hand.
    """

    value: int = 0
    next_reset: float = 0.0
    interval: float = 2.0

    def start(self, now: float) -> int:
        if now < self.next_reset:
            return self.value
        self.next_reset = now + self.interval
        return 0

    def advance(self, asked: int, seqs: Sequence[int], took_seconds: float) -> None:
        """A claim from 0 may have met rows far below: then the floor goes down to them."""
        if seqs:
            highest = max(seqs)
            if highest - self.value > FARTHEST_STEP:
                highest = _within_reach(min(seqs) if asked == 0 else self.value, seqs)
            self.value = highest if asked == 0 else max(self.value, highest)
        if asked == 0 and self.value > 0:
            slow = took_seconds > 0.05
            self.interval = min(10.0, self.interval * 2) if slow else 2.0


def _within_reach(last: int, seqs: Sequence[int]) -> int:
    """The highest seq that others lead up to. One that a producer wrote itself may be anything: from there, all others
    would be found by the timer only."""
    for seq in sorted(seqs):
        if seq - last > FARTHEST_STEP:
            break
        last = max(last, seq)
    return last


class Orders:
    """One process's claims: floors by type, the share of retries, and when suspects are claimed."""

    def __init__(self, clock: Clock, batch_size: int) -> None:
        self._clock = clock
        self._batch_size = batch_size
        self._floors: dict[str | None, Floor] = {}
        self._short: dict[str | None, bool] = {}
        self._next_suspects: dict[str | None, float] = {}
        self._lock = threading.Lock()

    def fresh(self, limit: int, entity_type: str | None = None) -> ClaimOrder:
        """Retries take at most half of a batch while fresh rows wait; a short claim said that none do."""
        with self._lock:
            floor = self._floors.setdefault(entity_type, Floor()).start(self._clock())
            short = self._short.get(entity_type, False)
        return ClaimOrder(
            token=uuid4(),
            limit=limit,
            retry_limit=limit if short else max(1, limit // 2),
            floor=floor,
            entity_type=entity_type,
        )

    def suspects(self, entity_type: str | None = None) -> list[ClaimOrder]:
        """The levels to try, when it is time: a process asks once per second until it finds some."""
        now = self._clock()
        with self._lock:
            if now < self._next_suspects.get(entity_type, 0.0):
                return []
            self._next_suspects[entity_type] = now + SUSPECT_PAUSE_SECONDS
        return [
            ClaimOrder(uuid4(), min(most, self._batch_size), 0, 0, entity_type, level)
            for level, most in SUSPECT_BATCH.items()
        ]

    def came_back(self, claimed: Claimed, took_seconds: float) -> None:
        order = claimed.order
        with self._lock:
            if order.suspects:
                if claimed.events:  # there may be more: ask again after the next batch
                    self._next_suspects[order.entity_type] = 0.0
                return
            events = claimed.events
            # A due row that was held back counts as fresh here: if it lifts the floor too high, the timer corrects it.
            fresh = [event.seq for event in events if event.attempts == 1]
            floor = self._floors.setdefault(order.entity_type, Floor())
            floor.advance(order.floor, fresh, took_seconds)
            self._short[order.entity_type] = len(events) < order.limit


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch, or none. `trial` names the paused target that this batch is the test of."""

    claimed: Claimed | None
    trial: str | None = None
    wait_seconds: float | None = None  # None = nothing to do: poll


@dataclass(slots=True)
class Kinds:
    """Which entity types this process claims. Not `by_type`: all of them at once, from one index."""

    always: bool = False  # the settings ask for it
    indexed: bool = False  # the twins of `outbox migrate --by-type` are there
    stopped: frozenset[str] = frozenset()  # by an operator, who could only say so where the twins are
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    limited: Callable[[str], bool] = lambda _: False
    index_of: Callable[[str], str] = str
    open: Sequence[str] = ()  # refreshed every second

    @property
    def by_type(self) -> bool:
        return self.always or (self.indexed and bool(self.stopped))

    def claimable(self, paused: frozenset[str]) -> list[str]:
        return [
            kind
            for kind in self.open
            if (not self.only or kind in self.only)
            and kind not in self.never
            and kind not in self.stopped
            and self.index_of(kind) not in paused
        ]


@dataclass(slots=True)
class Claimer:
    store: EventStore
    gate: PauseGate
    orders: Orders
    kinds: Kinds
    announce: Announce
    limit: Callable[[], int]  # what AIMD allows now
    boot_clock: Clock  # dates a claim; the leases count from that date by the same clock
    _turn: dict[int, int] = field(default_factory=dict)
    _fresh_next: set[str | None] = field(default_factory=set)  # types whose last batch was one of suspects

    def take(self, lane: int) -> Taken:
        """The cases: stopped by an operator; a probe is due; everything is paused; or claim."""
        if self.gate.stopped_by_operator():
            return Taken(None, wait_seconds=0.5)
        target = self.gate.due_probe()
        if target is not None:
            return self._trial(lane, target)
        paused = self.gate.paused_targets()
        if paused and (not self.kinds.by_type or EVERYTHING in paused):
            return Taken(None, wait_seconds=self.gate.wait_seconds())
        claimed = self._claim(lane, paused)
        wait = self.gate.wait_seconds() if paused and claimed is None else None
        return Taken(claimed, wait_seconds=wait)

    def _trial(self, lane: int, target: str) -> Taken:
        """One row goes ahead once the probe finds nothing wrong; where none waits, the probe is enough."""
        try:
            if self.gate.still_broken(target):
                return Taken(None, wait_seconds=self.gate.wait_seconds())
            claimed = self._claim_one(lane, target)
        except Exception:
            self.gate.give_up_probe(target)
            raise
        if claimed is None:
            self.gate.resume(target)
            return Taken(None, wait_seconds=0.0)
        return Taken(claimed, trial=target)

    def _claim_one(self, lane: int, target: str) -> Claimed | None:
        if not self.kinds.by_type:
            return self._ask(lane, self.orders.fresh(1))
        others = self.gate.paused_targets() - {target}
        for kind in self.kinds.claimable(others):
            if target in (EVERYTHING, self.kinds.index_of(kind)) and (claimed := self._fresh(lane, kind, 1)):
                return claimed
        return None

    def _claim(self, lane: int, paused: frozenset[str]) -> Claimed | None:
        if not self.kinds.by_type:
            return self._of_kind(lane, None)
        kinds = self.kinds.claimable(paused)
        turn = self._turn.get(lane, lane)  # lanes begin at different types, so that one type cannot keep all of them
        order = [(turn + step) % len(kinds) for step in range(len(kinds))]
        if lane != 0:
            # A limited type comes in batches of a few rows, which cost a lane as much time as full ones: the first lane
            # takes its turn with them, the others only when nothing else waits.
            order.sort(key=lambda place: self.kinds.limited(kinds[place]))
        for place in order:
            claimed = self._of_kind(lane, kinds[place])
            if claimed is not None:
                self._turn[lane] = place + 1
                return claimed
        return None

    def _of_kind(self, lane: int, kind: str | None) -> Claimed | None:
        """In the first lane every other batch may be one of suspects: they neither starve nor hold up the rest."""
        if lane != 0:
            return self._fresh(lane, kind, self.limit())
        if kind in self._fresh_next:
            self._fresh_next.remove(kind)
            return self._fresh(lane, kind, self.limit()) or self._suspects(lane, kind)
        return self._suspects(lane, kind) or self._fresh(lane, kind, self.limit())

    def _fresh(self, lane: int, kind: str | None, limit: int) -> Claimed | None:
        return self._ask(lane, self.orders.fresh(limit, kind), quota=self._limited(kind))

    def _suspects(self, lane: int, kind: str | None) -> Claimed | None:
        for order in self.orders.suspects(kind):
            claimed = self._ask(lane, order, quota=self._limited(kind))
            if claimed is not None:
                self._fresh_next.add(kind)
                return claimed
        return None

    def _limited(self, kind: str | None) -> bool:
        return kind is not None and self.kinds.limited(kind)

    def _ask(self, lane: int, order: ClaimOrder, *, quota: bool = False) -> Claimed | None:
        started, asked_at = time.monotonic(), self.boot_clock()
        claimed = self.store.claim_within_quota(order) if quota else self.store.claim(order)
        took = time.monotonic() - started
        self.orders.came_back(claimed, took)
        if not claimed.events:
            return None
        traces = [event.traceparent for event in claimed.events if event.traceparent]
        self.announce(BatchClaimed(order.token, lane, len(claimed.events), took, bool(order.suspects), traces))
        return replace(claimed, asked_at=asked_at)


class SharedLimit:
    """Maximum events per batch, for all lanes. Begins at the largest, because most sinks never push back. Pressure
    halves it, and ten good batches later it is back at full size."""

    def __init__(self, largest: int, announce: Announce) -> None:
        self._largest = self._items = largest
        self._announce = announce
        self._lock = threading.Lock()
        announce(LimitChanged(largest, "start"))

    def items(self) -> int:
        return self._items

    def report(self, report: WriteReport) -> None:
        """Learn from one write. A sink that is down says nothing about how much it could take."""
        if report.unreachable is not None and not report.pressure:
            return
        with self._lock:
            before = self._items
            grown = min(self._largest, before + max(1, self._largest // 20))
            self._items = max(1, before // 2) if report.pressure else grown
            changed = before != self._items
        if changed:
            self._announce(LimitChanged(self._items, "pressure" if report.pressure else "success"))
