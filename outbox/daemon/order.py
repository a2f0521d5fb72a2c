"""Decides what a lane's next claim asks for, and whether what came is out of order. Touches no database."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Final
from uuid import uuid4

from outbox.policy.event import Event
from outbox.ports import Claimed, ClaimOrder, Clock

SUSPECT_BATCH: Final = {1: 50, 2: 5, 3: 1}  # abandoned that often -> claimed so many at a time
SUSPECT_PAUSE_SECONDS: Final = 1.0
# Half of what Elasticsearch remembers a delete for by default (`index.gc_deletes`, 60 s); the other half is for
# requests on their way and for producers' clocks.
IN_ORDER_SECONDS: Final = 30.0
FARTHEST_STEP: Final = 1_000_000  # of the floor by one claim; when others have taken more than that, the timer follows

_ATTEMPTS, _RETRIED, _REPLAYED, _ABANDONED, _AGE = (
    itemgetter(Event._fields.index(name))
    for name in ("attempts", "retried", "replay_count", "abandoned_count", "age_seconds")
)


@dataclass(slots=True)
class Floor:
    """Skips dead index entries while someone pins the horizon: a claim from 0 took 170 ms, one from here 0.3 ms.

    Only the timer goes back to 0, one lane a process: so late commits with a lower seq and rows set by hand are found.
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


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a batch may come out of claim order: then its upserts must be checked against newer deletes, which
    Elasticsearch may have forgotten. Known from the rows alone, so every process knows it, however idle it was.

    Whoever was claimed before is always checked, before it is sent and after. A row that is only old is checked before
    it is sent: what is deleted after that look is younger than the batch, which `overdue` judges. One look costs
    5 us of CPU an event (median of five rounds, by turns in one run; 3.4 % of `drain`), and only a backlog pays it.
    """

    tried: bool  # someone in it was claimed before
    age_seconds: float  # of the oldest, at the claim

    @classmethod
    def of(cls, events: Sequence[Event]) -> "Standing":
        """Six looks in C, 0.2 us an event."""
        tried = (
            max(map(_ATTEMPTS, events)) > 1
            or any(map(_RETRIED, events))
            or any(map(_REPLAYED, events))
            or any(map(_ABANDONED, events))
        )
        # Before its own creation: a producer's clock, or infinity. That says nothing about its age.
        known = min(map(_AGE, events)) >= 0
        return cls(tried, max(map(_AGE, events)) if known else inf)

    def in_order(self, waited_seconds: float) -> bool:
        """Of a batch that was claimed `waited_seconds` ago: nearly always true."""
        return not self.tried and self.age_seconds + waited_seconds <= IN_ORDER_SECONDS

    def overdue(self, waited_seconds: float) -> bool:
        """Whether what was looked up at the claim is too old by now to be relied on: half a minute at the claim and a
        quarter since leave Elasticsearch a quarter of what it remembers."""
        return self.tried or waited_seconds > IN_ORDER_SECONDS / 2


class Orders:
    """One process's claims: floors by type, the share of retries, and when suspects are looked for."""

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
        """The levels to try, when it is time to look at all: a process looks once a second until it finds some."""
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
                if claimed.events:  # there may be more: look again after the next batch
                    self._next_suspects[order.entity_type] = 0.0
                return
            events = claimed.events
            # A due row that was held back counts as fresh here: should it lift the floor too high, the timer mends it.
            fresh = [event.seq for event in events if event.attempts == 1]
            floor = self._floors.setdefault(order.entity_type, Floor())
            floor.advance(order.floor, fresh, took_seconds)
            self._short[order.entity_type] = len(events) < order.limit
