"""Samples the events table every few seconds, apart from the claim loop, and announces the counts. Holds no SQL (see
store)."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from outbox.errors import DatabaseDown, SchemaMismatch
from outbox.facts import (
    Announce,
    BacklogSampled,
    Beat,
    DatabaseBack,
    DatabaseLost,
    FanoutSample,
    SampleMissed,
    SchemaChecked,
    SlotSample,
    TypeBacklog,
    Warned,
)
from outbox.store.backlog import PostgresBacklog
from outbox.store.pool import ReadTooLong

INTERVAL_SECONDS: Final = 2.0
# After a sample that took 100 ms it waits 2 s: even with a million open rows the sampler takes at most 5 % of a core.
REST: Final = 20
LONGEST_REST_SECONDS: Final = 30.0
WHERE: Final = "sampler"

T = TypeVar("T")


class _PacedQuery(Generic[T]):
    """One query at its own pace: expensive ones run less often. Keeps its last result; it may time out without delaying
    the main counts."""

    def __init__(self, clock: Callable[[], float], announce: Announce) -> None:
        self._clock = clock
        self._announce = announce
        self._due = float("-inf")
        self.last: T | None = None

    def run(self, query: Callable[[], T]) -> None:
        started = self._clock()
        if started < self._due:
            return
        try:
            self.last = query()
        except ReadTooLong as error:
            self._announce(SampleMissed(error.detail))
        finally:
            ended = self._clock()
            self._due = ended + min(REST * (ended - started), LONGEST_REST_SECONDS)


class BacklogSampler:
    def __init__(
        self,
        backlog: PostgresBacklog,
        announce: Announce,
        entity_types: Sequence[str] = (),
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backlog = backlog
        self._announce = announce
        self._entity_types = tuple(entity_types)
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._failed: _PacedQuery[Mapping[str, int]] = _PacedQuery(clock, announce)
        self._lanes: _PacedQuery[Mapping[str, TypeBacklog]] = _PacedQuery(clock, announce)
        self._slot: _PacedQuery[SlotSample | None] = _PacedQuery(clock, announce)
        self._fanouts: _PacedQuery[FanoutSample] = _PacedQuery(clock, announce)
        self._away_since: float | None = None
        self._schema_is_wrong = False
        self._capped = False

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._announce(Beat(WHERE))
            stop.wait(self.sample())

    def sample(self) -> float:
        """Takes one sample and returns how long to wait. If it fails, the last values and their timestamp stay."""
        started = self._clock()
        try:
            sampled = self._query(started)
        except ReadTooLong as error:
            self._announce(SampleMissed(error.detail))
            return LONGEST_REST_SECONDS / 3
        except DatabaseDown as error:
            self._away_since = self._away_since if self._away_since is not None else self._clock()
            self._announce(DatabaseLost(WHERE, error.detail or error.message))
            return self._interval_seconds
        except SchemaMismatch as error:
            self._schema_is_wrong = True
            self._announce(SchemaChecked(False, error.detail))
            return self._interval_seconds
        self._found_again()
        self._announce(sampled)
        self._warn_if_capped(sampled)
        return max(self._interval_seconds, min(REST * sampled.duration_seconds, LONGEST_REST_SECONDS))

    def _query(self, started: float) -> BacklogSampled:
        counts = self._backlog.open_counts()
        took = self._clock() - started
        self._failed.run(self._backlog.failed_by_reason)
        self._lanes.run(lambda: self._backlog.lanes(self._entity_types, counts))
        self._slot.run(self._backlog.slot)
        self._fanouts.run(self._backlog.fanouts)
        return BacklogSampled(
            lag=counts.lag,
            oldest_age_seconds=counts.oldest_age_seconds,
            inflight=counts.inflight,
            stuck=counts.stuck,
            due=counts.due,
            failed=self._failed.last or {},
            lanes=self._lanes.last or {},
            capped=counts.capped,
            duration_seconds=took,
            slot=self._slot.last,
            fanouts=self._fanouts.last,
        )

    def _found_again(self) -> None:
        if self._away_since is not None:
            self._announce(DatabaseBack(WHERE, self._clock() - self._away_since))
            self._away_since = None
        if self._schema_is_wrong:
            self._schema_is_wrong = False
            self._announce(SchemaChecked(True, "the schema is valid again"))

    def _warn_if_capped(self, sampled: BacklogSampled) -> None:
        if sampled.capped and not self._capped:
            message = "more rows are open than the sampler counts: lag, due and lanes are minimums until they drain"
            self._announce(Warned("sample.capped", message, {"lag": sampled.lag}))
        self._capped = sampled.capped
