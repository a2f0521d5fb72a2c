"""Keeps the results of comparisons, for the console, the metrics and whoever asks later. Compares nothing."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from psycopg.rows import dict_row

from outbox.policy.drift import DriftReport, totals
from outbox.store.pool import Database
from outbox.store.queries import queries

Row = Mapping[str, Any]


class LastVerification(NamedTuple):
    """The newest result, as a daemon announces it."""

    id: int
    compared: int
    drift: Mapping[str, int]
    finished_at: float
    duration_seconds: float


class PostgresVerifications:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("verifications")

    def begin(self, **about: object) -> int:
        with self._database.transaction() as connection:
            row = connection.execute(self._sql["begin"], about).fetchone()
            assert row is not None
            return int(row[0])

    def counts(self, id: int, report: DriftReport, status: str = "running", error: str | None = None) -> None:
        over = status != "running"
        named = {
            "id": id,
            "status": status,
            "compared": report.compared,
            "unreadable": report.unreadable,
            "in_flux": report.in_flux,
            "report": orjson.dumps(report.as_json()).decode() if over else None,
            "error": error,
            **totals(report),
        }
        with self._database.transaction() as connection:
            connection.execute(self._sql["counts"], named)

    def lately(self, limit: int, *, reports: bool = False, rebuilds: bool = False) -> Sequence[Row]:
        named = {"limit": limit, "reports": reports, "rebuilds": rebuilds}
        with self._database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return [_parsed(row) for row in cursor.execute(self._sql["lately"], named).fetchall()]

    def last_finished(self, targets: Sequence[str]) -> LastVerification | None:
        """Of a comparison of just these targets, whole or by sample."""
        with self._database.connection() as connection:
            row = connection.execute(self._sql["last_finished"], {"target": ", ".join(targets)}).fetchone()
        if row is None:
            return None
        id, compared, missing, stale, orphaned, different, unknown, finished_at, took = row
        drift = {
            "missing": missing,
            "stale": stale,
            "orphaned": orphaned,
            "different": different,
            "unknown": unknown,
        }
        return LastVerification(id, compared, drift, finished_at, took)


def _parsed(row: dict[str, Any]) -> Row:
    report = row["report"]
    return {**row, "report": None if report is None else orjson.loads(report)}
