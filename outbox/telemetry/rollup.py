"""Counts events by type, outcome and reason, and writes the counts to the store every ten seconds. Holds no SQL."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

from outbox.errors import OutboxError
from outbox.facts import Announce, BatchSettled, Beat, DatabaseLost, Fact, Reclaimed
from outbox.policy.outcome import Reason
from outbox.store.failures import PostgresRollup

INTERVAL_SECONDS: Final = 10.0
MOST_TYPES: Final = 200
OTHER: Final = "other"
# PostgreSQL cannot index arbitrarily long text; a type is a short name.
LONGEST_TYPE: Final = 200

Key = tuple[str, str, str]  # entity type, outcome, reason


class Rollup:
    """Subscribe `handle`; `run` is the loop. Memory is limited: types after the first 200 count as `other`."""

    def __init__(
        self, store: PostgresRollup, announce: Announce, *, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self._store = store
        self._announce = announce
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._counts: Counter[Key] = Counter()
        self._types: set[str] = {OTHER}

    def handle(self, fact: Fact) -> None:
        if isinstance(fact, BatchSettled):
            self._add(fact.by_type)
        elif isinstance(fact, Reclaimed) and fact.failed:
            self._add({(OTHER, "failed", str(Reason.CRASH_SUSPECT)): fact.failed})

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_seconds):
            self._announce(Beat("rollup"))
            self.flush()
        self.flush()

    def flush(self) -> None:
        """Counts that could not be written are added to the next ones."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            self._store.add(counts)
        except OutboxError as error:
            with self._lock:
                self._counts.update(counts)
            self._announce(DatabaseLost("rollup", error.detail or error.message))

    def _add(self, by_type: Mapping[Key, int]) -> None:
        with self._lock:
            for (entity_type, outcome, reason), count in by_type.items():
                self._counts[self._known(entity_type), str(outcome), str(reason)] += count

    def _known(self, entity_type: str) -> str:
        if entity_type in self._types:
            return entity_type
        if len(self._types) > MOST_TYPES or len(entity_type) > LONGEST_TYPE:
            return OTHER
        self._types.add(entity_type)
        return entity_type
