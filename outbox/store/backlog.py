"""Reads how much waits and what `outbox status` and `outbox wait` show, each query bounded. Changes nothing."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from psycopg import Connection

from outbox.facts import FanoutSample, SlotSample, TypeBacklog
from outbox.policy.schema import SchemaState
from outbox.ports import OpenCounts
from outbox.store.pool import BoundedStore, Database, fetch_rows
from outbox.store.queries import queries
from outbox.store.schema.state import check_schema

# Counting a million open rows takes 85 ms after a vacuum, 600 after 300,000 were drained (measured); no more than that.
MOST_COUNTED: Final = 1_000_000
MOST_FAILED: Final = 100_000  # grouping these by reason reads the rows: 50 ms
# Claims take from the low end, so what is in flight lies among these; 10,000 rows are 5 ms.
HEAD_ROWS: Final = 10_000
OTHER: Final = "other"
MOST_LABELS: Final = 50  # types that are labels by their declaration: each is two series of each daemon

# Estimates are wrong right after a flood; a Seq Scan over millions of done rows must not follow from that. No helpers
# from parallel plans either: the sampler may take one core for a moment, never all of them.
SETTINGS: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}


class PostgresBacklog(BoundedStore, topic="inspection"):
    plans = SETTINGS

    def __init__(
        self,
        database: Database,
        *,
        time_limit_ms: int = 2_000,
        max_processing_seconds: float = 600.0,
        slot: str | None = None,
    ) -> None:
        """`slot`: of the event log's connector, where it is to be sampled."""
        super().__init__(database)
        self._slot = slot
        self.time_limit_ms = time_limit_ms
        self._max_processing = timedelta(seconds=max_processing_seconds)

    def open_counts(self) -> OpenCounts:
        row = self._one("sample_backlog", most=MOST_COUNTED, head=HEAD_ROWS, max_processing=self._max_processing)
        assert row is not None
        lag, oldest_age, inflight, stuck, waiting, capped = row
        return OpenCounts(lag, oldest_age, int(inflight), int(stuck), waiting, capped)

    def failed_by_reason(self) -> dict[str, int]:
        return dict(self._all("sample_failed", most=MOST_FAILED))

    def fanouts(self) -> FanoutSample:
        return FanoutSample(**self._rows("sample_fanouts", head=HEAD_ROWS, most=MOST_COUNTED)[0])

    def lanes(self, entity_types: Sequence[str], total: OpenCounts) -> dict[str, TypeBacklog]:
        """One lane per configured type, and per type of the first that were declared; what is left of the total is
        `other`. Settings that name types need the twins anyway; without them all types are counted in one pass."""
        with self._connection() as connection:
            declared = connection.execute(self._sql["labelled_types"], {"most_types": MOST_LABELS}).fetchall()
            types = dict.fromkeys((*entity_types, *(name for (name,) in declared)), TypeBacklog(0, 0.0, 0))
            named = {"entity_types": list(types), "most": MOST_COUNTED, "head": HEAD_ROWS, "most_types": None}
            query = self._sql["sample_lanes"] if entity_types else queries("overview")["open_by_type"]
            rows = connection.execute(query, named).fetchall() if types else ()
            lanes = types | {name: TypeBacklog(sum(n), age, int(due)) for name, *n, age, due in rows if name in types}
            rest = _rest(total, lanes)
            age = connection.execute(self._sql["oldest_of_other_types"], named).fetchone() if rest.lag else None
        return lanes | {OTHER: TypeBacklog(rest.lag, age[0] if age else 0.0, rest.due)}

    def slot(self) -> SlotSample | None:
        """None where it is not asked for, or producers do not write to the log."""
        if self._slot is None:
            return None
        with self._connection() as connection:
            rows = fetch_rows(connection, queries("event_log")["sample_slot"], {"slot": self._slot})
        return SlotSample(**rows[0]) if rows else None

    def open_events(self, topic: str, group: str) -> dict[int, int]:
        with self._connection() as connection:
            return open_events(connection, topic, group)


def _rest(total: OpenCounts, lanes: Mapping[str, TypeBacklog]) -> TypeBacklog:
    lag = max(total.lag - sum(lane.lag for lane in lanes.values()), 0)
    due = max(total.due - sum(lane.due for lane in lanes.values()), 0)
    return TypeBacklog(lag, 0.0, due)


MOST_ROWS: Final = 100_000  # 100,000 rows by their types are read in 100 ms
MOST_TYPES: Final = 200
MOST_WORKERS: Final = 200
WINDOW: Final = timedelta(seconds=10)

Row = Mapping[str, Any]


class PostgresOverview(BoundedStore, topic="overview"):
    """Rows as they are, named by their columns; what they mean is said in `ops`."""

    def schema(self) -> SchemaState:
        with self._database.connection() as connection:
            return check_schema(connection)

    def declared(self) -> Sequence[Row]:
        return self._rows("declared", most_types=MOST_TYPES)

    def open_by_type(self) -> Sequence[Row]:
        return self._rows("open_by_type", most=MOST_ROWS, most_types=MOST_TYPES)

    def failed_by_type(self) -> Sequence[Row]:
        return self._rows("failed_by_type", most=MOST_ROWS, most_types=MOST_TYPES)

    def rate(self) -> float:
        """Events finished a second, over the last ten; at most 10,000, which is read in 30 ms."""
        return int(self._value("finished_lately", window=WINDOW, most=MOST_ROWS) or 0) / WINDOW.total_seconds()

    def workers(self) -> Sequence[Row]:
        return self._rows("workers", most=MOST_WORKERS)

    def pauses(self) -> Sequence[Row]:
        return self._rows("pauses")

    def last_seq(self) -> int:
        return int(self._value("last_seq") or 0)

    def open_up_to(self, seq: int) -> int:
        return int(self._value("open_up_to", seq=seq, most=MOST_ROWS) or 0)


def open_events(connection: Connection[Any], topic: str, group: str) -> dict[int, int]:
    """Rows of one group's records that wait, by partition."""
    named = {"beginning": f"kafka:{topic}:", "group": group}
    return dict(connection.execute(queries("inspection")["open_events"], named).fetchall())
