"""Statistics for people: what failed, how it came, what became of replays. Reads only, and never done rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from outbox.ops import inputs
from outbox.ops.stored import failure_type
from outbox.policy.filter import NONE

DONE_OUTCOMES: Final = frozenset({"done", "superseded", "missing"})
MOST_HOURS: Final = 24 * 90

Row = Mapping[str, Any]


class Statistics(Protocol):
    def failed(self) -> Sequence[Row]: ...
    def failed_hours(self, window: timedelta) -> Sequence[Row]: ...
    def discarded(self) -> Mapping[str, int]: ...
    def outcomes(self, window: timedelta) -> Sequence[Row]: ...
    def totals(self) -> Sequence[Row]: ...
    def replays(self, window: timedelta) -> Row: ...


class FailedStats(NamedTuple):
    """Rows that are failed now (001's statistics)."""

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
    store: Statistics

    def failed(self) -> FailedStats:
        return _failed(self.store.failed())

    def look(self, hours: int = 48) -> Stats:
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
