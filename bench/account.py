"""The cost of some work per event: CPU of each part, WAL, share of HOT updates, transactions."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from bench.result import BenchmarkResult
from bench.stack import BenchmarkServers
from bench.worker import Daemons


@dataclass(slots=True)
class CpuAccount:
    stack: BenchmarkServers
    url: str
    daemons: Daemons
    idle: Mapping[str, float] = field(default_factory=dict)  # cores of a server while there is nothing to do: left out
    _before: dict[str, float] | None = None
    _opened_at: float = 0.0

    def open(self) -> None:
        self._before, self._opened_at = self._read(), time.monotonic()

    def close(self, result: BenchmarkResult, events: int, prefix: str = "") -> None:
        assert self._before is not None
        after, seconds = self._read(), time.monotonic() - self._opened_at
        spent = {name: after[name] - self._before[name] - self.idle.get(name, 0.0) * seconds for name in after}
        for part in (*self.stack.embedded, "daemon"):
            result.add(f"{prefix}CPU of {part}", "us/event", spent[part] * 1e6 / events)
        result.add(f"{prefix}WAL", "bytes/event", spent["wal"] / events)
        result.add(f"{prefix}HOT share of updates", "", spent["hot"] / max(spent["updates"], 1))
        result.add(f"{prefix}transactions", "per event", spent["commits"] / events)

    def _read(self) -> dict[str, float]:
        return {**self.stack.cpu_seconds(), "daemon": self.daemons.cpu_seconds(), **_table(self.url)}


def _table(url: str) -> dict[str, float]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_stat_clear_snapshot()")
        row: tuple[Any, ...] | None = connection.execute(
            "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8, t.n_tup_upd::float8,"
            " t.n_tup_hot_upd::float8, d.xact_commit::float8"
            " from pg_stat_user_tables t, pg_stat_database d"
            " where t.relname = 'search_outbox_events' and d.datname = current_database()"
        ).fetchone()
    assert row is not None
    return dict(zip(("wal", "updates", "hot", "commits"), row, strict=True))
