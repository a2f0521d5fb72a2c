"""Owns what is done to whom and in which order: a pure function of the seed. When it happens is the run's."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

WORKERS = ("w1", "w2", "w3", "w4")
KINDS = ("page", "block")  # the entity types that are kept by payloads

# Each lane is a thread of its own and does one thing at a time; lanes overlap. A deck is shuffled, played, and
# shuffled again, so that a short run has met everything once and a long one everything often.
DECKS: dict[str, tuple[str, ...]] = {
    "workers": ("kill_9", "sigterm", "kill_9", "clock_shift", "kill_9", "kill_9"),
    "freezer": ("sigstop",),
    "postgresql": ("pg_terminate", "pg_fast", "pg_immediate", "db_cut", "db_stall"),
    "elasticsearch": ("es_cut", "es_stall", "es_lose_reply", "es_429", "es_restart"),
    "people": ("replay", "prune", "verify", "rebuild"),
}
PEOPLE = ("replay", "prune", "verify", "rebuild")
FAULTS = tuple(dict.fromkeys(kind for lane, deck in DECKS.items() if lane != "people" for kind in deck))
# With Kafka as the source. A prune would remove the rows of deletes, which are to be kept for as long as the topic
# keeps records; a rebuild is refused, because PostgreSQL does not have the payloads (docs/kafka.md).
KAFKA_DECKS: dict[str, tuple[str, ...]] = {
    "workers": ("kill_9", "sigterm", "kill_9"),
    "freezer": ("sigstop",),
    "kafka": ("broker_kill", "connect_kill", "broker_stop"),
    "postgresql": DECKS["postgresql"],
    "elasticsearch": DECKS["elasticsearch"],
    "people": ("replay", "verify"),
}
KAFKA_KINDS = tuple(dict.fromkeys(kind for deck in KAFKA_DECKS.values() for kind in deck))
# Seconds between two acts of a lane, at least and at most.
GAPS = {
    "workers": (2.5, 6.0),
    "freezer": (3.0, 8.0),
    "kafka": (4.0, 9.0),
    "postgresql": (6.0, 13.0),
    "elasticsearch": (2.0, 5.0),
    "people": (4.0, 10.0),
    "failover": (4.0, 8.0),
    "cluster": (3.0, 6.0),
    "starvation": (3.0, 6.0),
    "schema": (6.0, 15.0),
    "kills": (20.0, 50.0),
    "restarts": (180.0, 420.0),
}
# What takes many seconds and both servers, and so seldom ends in a storm: every third round it has a quiet window, and
# always when the time is over.
LONG = ("verify", "rebuild", "repair", "backfill", "refresh")
QUIET_EVERY, QUIET_AT = 3, 1
SHIFTS = (3600, -3600, 300, -300, 7, -7, 86_400, 0)


@dataclass(frozen=True, slots=True)
class PlannedAct:
    """One thing to do. `victim` is the worker it is meant for; `size` from 0 to 1 says how hard or how long."""

    number: int
    lane: str
    kind: str
    victim: str
    gap_seconds: float
    size: float
    shift_seconds: int
    round: int

    late: bool = False  # the time is over: what has bitten too seldom is tried again

    @property
    def in_quiet(self) -> bool:
        return self.kind in LONG and (self.late or self.round % QUIET_EVERY == QUIET_AT)


def acts(lane: str, seed: int, decks: Mapping[str, Sequence[str]] = DECKS) -> Iterator[PlannedAct]:
    """Without end; the same for the same seed, whatever the machine does."""
    dice = random.Random(f"{seed}:{lane}")
    number = 0
    for round_ in range(1_000_000):
        deck = list(decks[lane])
        dice.shuffle(deck)
        for kind in deck:
            number += 1
            gap, size = dice.uniform(*GAPS[lane]), dice.random()
            yield PlannedAct(number, lane, kind, dice.choice(WORKERS), gap, size, dice.choice(SHIFTS[:-1]), round_)
