"""Reads failed events for people (pages, groups, plans of a replay) and statistics; keeps the roll-up.

Plans are read in a read-only transaction with one snapshot, so that counts, sample and ids agree. Done rows are never
read.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from psycopg import Connection

from outbox.policy.inputs import EventFilter, parameters
from outbox.store.filters import event_filter
from outbox.store.pool import BoundedStore, TopicStore, fetch_rows

MOST_GROUPED: Final = 200_000  # the statement's time limit would come first; more would tell the same story

Row = Mapping[str, Any]


class PostgresFailures(BoundedStore, topic="failures"):
    def preview(self, asked: EventFilter, limit: int, offset: int) -> Sequence[Row]:
        return self._filtered("preview", asked, limit=limit, offset=offset)

    def count(self, asked: EventFilter, most: int) -> int:
        return int(self._filtered("count", asked, most=most)[0]["count"])

    def by_type(self, asked: EventFilter) -> Mapping[str, int]:
        return {row["entity_type"]: row["n"] for row in self._filtered("by_type", asked, most=MOST_GROUPED)}

    def groups(self, asked: EventFilter, limit: int) -> Sequence[Row]:
        return self._filtered("groups", asked, limit=limit, most=MOST_GROUPED)

    def group_samples(self, fingerprints: Sequence[str]) -> Mapping[str, Row]:
        return {row["fingerprint"]: row for row in self._rows("group_samples", fingerprints=list(fingerprints))}

    def group_hours(self, fingerprints: Sequence[str], window: timedelta) -> Sequence[tuple[str, datetime, int]]:
        rows = self._rows("group_hours", fingerprints=list(fingerprints), window=window)
        return [(row["fingerprint"], row["hour"], row["n"]) for row in rows]

    def plan(self, asked: EventFilter, limit: int, rows: int) -> tuple[Sequence[Row], Sequence[Row]]:
        """(counts by type, reason, fingerprint and in all; the first rows) of what a replay would take."""
        with self._database.transaction(snapshot=True) as connection:
            counts = self._fetch(connection, "plan_counts", asked, limit=limit)
            return counts, self._fetch(connection, "plan_rows", asked, limit=min(limit, rows))

    def plan_ids(self, asked: EventFilter, limit: int) -> Sequence[UUID]:
        with self._database.transaction(snapshot=True) as connection:
            return [row["id"] for row in self._fetch(connection, "plan_ids", asked, limit=limit)]

    def chosen(self, asked: EventFilter, ids: Sequence[UUID]) -> Sequence[Row]:
        """These events, whatever their state, as far as the rest of the filter fits."""
        with self._database.transaction(snapshot=True) as connection:
            return self._fetch(connection, "chosen_rows", asked, ids=list(ids))

    def _filtered(self, query: str, asked: EventFilter, **named: Any) -> Sequence[Row]:
        with self._connection() as connection:
            return self._fetch(connection, query, asked, **named)

    def _fetch(self, connection: Connection[Any], query: str, asked: EventFilter, **named: Any) -> Sequence[Row]:
        about = parameters(asked) if asked.entity_id is None else event_filter(connection, asked)
        return fetch_rows(connection, self._sql[query], about | named)


MOST_FAILED: Final = 200_000


class PostgresStatistics(BoundedStore, topic="statistics"):
    def failed(self) -> Sequence[Row]:
        return self._rows("failed", most=MOST_FAILED)

    def failed_hours(self, window: timedelta) -> Sequence[Row]:
        return self._rows("failed_hours", window=window, most=MOST_FAILED)

    def discarded(self) -> Mapping[str, int]:
        return {row["entity_type"]: row["n"] for row in self._rows("discarded", limit=200)}

    def outcomes(self, window: timedelta) -> Sequence[Row]:
        return self._rows("outcomes", window=window)

    def totals(self) -> Sequence[Row]:
        return self._rows("totals")

    def replays(self, window: timedelta) -> Row:
        return self._rows("replays", window=window)[0]

    def minutes(self, window: timedelta) -> Sequence[tuple[Any, ...]]:
        return self._all("minutes", window=window)

    def compact(self, age: timedelta, limit: int) -> int:
        with self._database.transaction() as connection:
            row = connection.execute(self._sql["compact"], {"age": age, "limit": limit}).fetchone()
            return int(row[0]) if row else 0


RollupKey = tuple[str, str, str]  # entity type, outcome, reason


class PostgresRollup(TopicStore, topic="rollup"):
    def add(self, counts: Mapping[RollupKey, int]) -> None:
        """One statement for all of them, whatever their number."""
        entity_types, outcomes, reasons = (list(column) for column in zip(*counts, strict=True))
        named = {"entity_types": entity_types, "outcomes": outcomes, "reasons": reasons}
        self._run("add_counts", **named, counts=list(counts.values()))
