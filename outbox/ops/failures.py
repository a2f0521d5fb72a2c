"""Failed events for people: groups, the preview of a replay, statistics. Reads only, and never done rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from outbox.ops.stored_event import failure_type
from outbox.policy import inputs
from outbox.policy.inputs import NONE, EventFilter

if TYPE_CHECKING:
    from outbox.store.failures import PostgresFailures, PostgresStatistics

SPARK_HOURS: Final = 24
MOST_GROUPS: Final = 200

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one kind. `failed_again`: of them, replayed before. `hours`: the last 24, the newest last."""

    fingerprint: str
    error_reason: str | None
    error_code: str | None
    failure_type: str
    count: int
    failed_again: int
    entity_types: Sequence[str]
    dead_reasons: Sequence[str]
    first_failed_at: datetime
    last_failed_at: datetime
    last_day: int
    day_before: int
    hours: Sequence[int]
    sample_id: UUID | None
    sample_error: str | None
    last_replayed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Preview:
    """One page of what a replay would take, in its order. `total` stops at 10,001, which reads "10,000+"."""

    page: int
    page_size: int
    total: int
    rows: Sequence[Row]

    @property
    def has_more(self) -> bool:
        return self.page * self.page_size < self.total


@dataclass(frozen=True, slots=True)
class FailureDesk:
    store: PostgresFailures

    def preview(self, asked: EventFilter, page: int = 1, page_size: int = 50) -> Preview:
        """No side effect. Pages count from 1; at most 500 rows per page."""
        size = inputs.whole("page_size", page_size, 1, 500)
        number = inputs.whole("page", page, 1, 1_000_000 // size + 1)
        rows = self.store.preview(asked, size, (number - 1) * size)
        return Preview(number, size, self.store.count(asked, inputs.MOST_COUNTED + 1), rows)

    def by_type(self, asked: EventFilter) -> Mapping[str, int]:
        """How many failed events of each entity type match."""
        return self.store.by_type(asked)

    def groups(self, asked: EventFilter, limit: int = 100) -> Sequence[FailureGroup]:
        """The largest first."""
        found = self.store.groups(asked, inputs.whole("limit", limit, 1, MOST_GROUPS))
        names = [row["fingerprint"] for row in found if row["fingerprint"] is not None]
        samples = self.store.group_samples(names) if names else {}
        sparks = _sparks(self.store.group_hours(names, timedelta(hours=SPARK_HOURS)) if names else ())
        return [_group(row, samples.get(row["fingerprint"], {}), sparks) for row in found]


def _sparks(hours: Sequence[tuple[str, datetime, int]]) -> dict[str, list[int]]:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    sparks: dict[str, list[int]] = {}
    for fingerprint, hour, n in hours:
        place = SPARK_HOURS - 1 - int((now - hour).total_seconds() // 3600)
        if 0 <= place < SPARK_HOURS:
            sparks.setdefault(fingerprint, [0] * SPARK_HOURS)[place] += n
    return sparks


def _group(row: Row, sample: Row, sparks: Mapping[str, list[int]]) -> FailureGroup:
    own = {
        "fingerprint": row["fingerprint"] or NONE,
        "failure_type": failure_type(row["error_reason"] or ""),
        "count": row["n"],
        "entity_types": sorted(row["entity_types"] or ()),
        "dead_reasons": sorted(row["dead_reasons"] or ()),
        "hours": sparks.get(row["fingerprint"], [0] * SPARK_HOURS),
        "sample_id": sample.get("id"),
        "sample_error": sample.get("error"),
        "last_replayed_at": sample.get("last_replayed_at"),
    }
    names = FailureGroup.__dataclass_fields__.keys() & row.keys()
    return FailureGroup(**{name: row[name] for name in names} | own)


DONE_OUTCOMES: Final = frozenset({"done", "superseded", "missing"})
MOST_HOURS: Final = 24 * 90


class FailedStats(NamedTuple):
    """Rows that are failed now."""

    total: int
    by_entity_type: Mapping[str, int]
    by_reason: Mapping[str, int]
    by_failure_type: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HourOfFailures:
    """One hour: rows that failed in it and still are, by failure type."""

    hour: datetime
    by_failure_type: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HourOfWork:
    """One hour of the roll-up: done (superseded and missing included), failed, retried, released."""

    hour: datetime
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Stats:
    """`failed_again`: of the failed rows, those that were replayed before. `table`: entity type -> failure type -> n.
    `last_day` and `day_before` count rows that failed then and still are. `work` and `finished` come from the roll-up,
    which the daemons feed every ten seconds."""

    failed: FailedStats
    failed_again: int
    oldest: datetime | None
    newest: datetime | None
    table: Mapping[str, Mapping[str, int]]
    hours: Sequence[HourOfFailures]
    last_day: int
    day_before: int
    discarded: Mapping[str, int]
    work: Sequence[HourOfWork]
    finished: Mapping[str, int]
    replays: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StatsDesk:
    store: PostgresStatistics

    def failed(self) -> FailedStats:
        return _failed(self.store.failed())

    def read(self, hours: int = 48) -> Stats:
        """The last hours are of the roll-up and of the charts; the rest is as it is now."""
        window = timedelta(hours=inputs.whole("hours", hours, 1, MOST_HOURS))
        rows = self.store.failed()
        by_hour = self.store.failed_hours(max(window, timedelta(hours=48)))
        last_day, day_before = _days(by_hour)
        return Stats(
            failed=_failed(rows),
            failed_again=sum(row["failed_again"] for row in rows),
            oldest=min((row["oldest"] for row in rows), default=None),
            newest=max((row["newest"] for row in rows), default=None),
            table=_table(rows),
            hours=_hours(by_hour, window),
            last_day=last_day,
            day_before=day_before,
            discarded=self.store.discarded(),
            work=_work(self.store.outcomes(window)),
            finished=self.finished(),
            replays=dict(self.store.replays(window)),
        )

    def finished(self) -> Mapping[str, int]:
        """Done events by entity type, as far back as the roll-up remembers."""
        counts: Counter[str] = Counter()
        for row in self.store.totals():
            if row["outcome"] in DONE_OUTCOMES:
                counts[row["entity_type"]] += row["n"]
        return dict(counts.most_common())


def _failed(rows: Sequence[Row]) -> FailedStats:
    by_type, by_reason, by_kind = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        by_type[row["entity_type"]] += row["n"]
        by_reason[row["error_reason"] or NONE] += row["n"]
        by_kind[failure_type(row["error_reason"] or "")] += row["n"]
    counts = (dict(counter.most_common()) for counter in (by_type, by_reason, by_kind))
    return FailedStats(sum(by_type.values()), *counts)


def _table(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for row in rows:
        line = table.setdefault(row["entity_type"], {})
        kind = failure_type(row["error_reason"] or "")
        line[kind] = line.get(kind, 0) + row["n"]
    return table


def _hours(rows: Sequence[Row], window: timedelta) -> list[HourOfFailures]:
    hours: dict[datetime, Counter[str]] = {}
    for row in rows:
        hours.setdefault(row["hour"], Counter())[failure_type(row["error_reason"] or "")] += row["n"]
    newest = max(hours, default=None)
    return [
        HourOfFailures(hour, dict(counts))
        for hour, counts in sorted(hours.items())
        if newest is not None and hour > newest - window
    ]


def _days(rows: Sequence[Row]) -> tuple[int, int]:
    now = datetime.now(tz=rows[0]["hour"].tzinfo) if rows else None
    if now is None:
        return 0, 0
    ages = [(now - row["hour"], row["n"]) for row in rows]
    day = timedelta(days=1)
    return sum(n for age, n in ages if age < day), sum(n for age, n in ages if day <= age < 2 * day)


def _work(rows: Sequence[Row]) -> list[HourOfWork]:
    hours: dict[datetime, Counter[str]] = {}
    for row in rows:
        outcome = "done" if row["outcome"] in DONE_OUTCOMES else row["outcome"]
        hours.setdefault(row["hour"], Counter())[outcome] += row["n"]
    return [HourOfWork(hour, dict(counts)) for hour, counts in sorted(hours.items())]
