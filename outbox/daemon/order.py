"""Decides what a lane's next claim asks for: how many, from which floor, which type. Touches no database."""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final
from uuid import uuid4

from outbox.policy.event import Event
from outbox.ports import Claimed, ClaimOrder, Clock

SUSPECT_BATCH: Final = {1: 50, 2: 5, 3: 1}  # abandoned that often -> claimed so many at a time
SUSPECT_PAUSE_SECONDS: Final = 1.0
IN_ORDER_AFTER_SECONDS: Final = 30.0
FARTHEST_STEP: Final = 1_000_000  # of the floor by one claim; when others have taken more than that, the timer follows

_SEQ, _ATTEMPTS, _RETRIED, _REPLAYED, _ABANDONED = (
    itemgetter(Event._fields.index(name)) for name in ("seq", "attempts", "retried", "replay_count", "abandoned_count")
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


def lowest_of_new(events: Sequence[Event]) -> int | None:
    """The lowest seq of a batch; None = someone in it was claimed before. Five looks in C, 0.15 us an event."""
    if (
        max(map(_ATTEMPTS, events)) > 1
        or any(map(_RETRIED, events))
        or any(map(_REPLAYED, events))
        or any(map(_ABANDONED, events))
    ):
        return None
    lowest: int = min(map(_SEQ, events))
    return lowest


class Horizon:
    """Knows which upserts come out of claim order, and so must be checked against newer deletes.

    Its clock is the boot clock: while this machine sleeps others work, and Elasticsearch forgets."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock()
        self._samples: deque[tuple[float, int]] = deque()
        self._settled = 0  # the highest seq that this process had claimed 30 s ago
        self._lock = threading.Lock()

    def saw(self, events: Sequence[Event], asked_at: float | None = None) -> None:
        """A batch, at the time of its claim's asking: the reply may have waited, and others gone on. One sample a
        second, by time; a batch that joins one counts as claimed a little earlier, never later."""
        at = self._clock() if asked_at is None else asked_at
        highest = max(map(_SEQ, events))
        with self._lock:
            place = bisect_right(self._samples, at, key=itemgetter(0))
            if place and at - self._samples[place - 1][0] < 1.0:
                since, seq = self._samples[place - 1]
                self._samples[place - 1] = (since, max(seq, highest))
            else:
                self._samples.insert(place, (at, highest))

    def look(self) -> None:
        """Time has passed, also for a batch in flight: one that was claimed over 30 s ago is out of order by itself."""
        now = self._clock()
        with self._lock:
            while self._samples and self._samples[0][0] <= now - IN_ORDER_AFTER_SECONDS:
                self._settled = max(self._settled, self._samples.popleft()[1])

    def none_late(self, lowest: int | None) -> bool:
        """`is_late` of a whole batch, by its `lowest_of_new`: nearly always true."""
        return lowest is not None and lowest > self._settled and self._clock() - self._started >= IN_ORDER_AFTER_SECONDS

    def is_late(self, event: Event) -> bool:
        """Out of claim order; in the first half minute of a process everything may be."""
        return (
            event.seq <= self._settled
            or event.attempts > 1
            or event.retried
            or event.replay_count > 0
            or event.abandoned_count > 0
            or self._clock() - self._started < IN_ORDER_AFTER_SECONDS
        )


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
