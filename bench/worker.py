"""Real daemon processes for measurements: started, paused, observed, stopped by their ids."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg

LOG = Path("build/bench/daemon.log")

# The first has its own index. The second reads the whole table and runs only after the first found nothing: at ten
# times per second it took 20 % of a core from what was measured.
OPEN = "processed_at is null and failed_at is null"
FRESH = f"{OPEN} and next_retry_at is null and abandoned_count = 0"


def claim_seconds(since: int) -> list[float]:
    """Duration of each claim, from the daemon's own log lines after byte `since`."""
    with LOG.open("rb") as log:
        log.seek(since)
        lines = (json.loads(line) for line in log if b'"batch.claimed"' in line)
        return [line["duration_ms"] / 1000 for line in lines]


def settled(since: int) -> list[tuple[float, int]]:
    """(time, number done) of each settled batch after byte `since`."""
    with LOG.open("rb") as log:
        log.seek(since)
        lines = (json.loads(line) for line in log if b'"batch.settled"' in line)
        return [(datetime.fromisoformat(line["ts"]).timestamp(), line["counts"].get("done", 0)) for line in lines]


def log_size() -> int:
    return LOG.stat().st_size if LOG.exists() else 0


class Daemons:
    """One or more daemons on one table. Paused like by an operator, so that they stay warm between rounds."""

    def __init__(self, url: str, processes: list[subprocess.Popen[bytes]]) -> None:
        self._url = url
        self.processes = processes

    def pause(self) -> None:
        _forbid(self._url)
        time.sleep(2.5)  # takes effect within two seconds

    def resume(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("delete from search_outbox_controls where scope = '*'")

    def cpu_seconds(self) -> float:
        return sum(sum(psutil.Process(p.pid).cpu_times()[:2]) for p in self.processes)

    def resident_bytes(self) -> int:
        return sum(psutil.Process(p.pid).memory_info().rss for p in self.processes)

    def wait_done(self, events: int, limit_seconds: float = 900.0) -> float:
        """Seconds from the first claim to the last settle, by the database's clock."""
        ends = time.monotonic() + limit_seconds
        floor: int | None = 0
        with psycopg.connect(self._url, autocommit=True) as connection:
            while time.monotonic() < ends:
                self.check_alive()
                if _last_is_done(connection):
                    floor = _first(connection, FRESH, floor)
                    if floor is None and _first(connection, OPEN) is None:
                        return self._span(connection, events)
                time.sleep(0.5)  # the duration is by processed_at: a later poll changes no figure
        raise TimeoutError(f"not drained within {limit_seconds:.0f} s; see {LOG}")

    def _span(self, connection: psycopg.Connection, events: int) -> float:
        row = connection.execute(
            "select extract(epoch from max(processed_at) - min(last_attempt_at))::float8, count(*)"
            " from search_outbox_events where status = 'done' and last_attempt_at is not null"
        ).fetchone()
        if row is None or row[1] != events:
            raise RuntimeError(f"{row[1] if row else 0} of {events} are done; see {LOG}")
        return float(row[0])

    def done_within(self, seconds: int) -> tuple[int, float]:
        """How many were done in the first `seconds` after the first claim, and in how many of these."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(
                "select count(*), extract(epoch from max(processed_at) - min(began))::float8"
                " from search_outbox_events, (select min(last_attempt_at) from search_outbox_events) first (began)"
                " where processed_at <= began + make_interval(secs => %s)",
                [seconds],
            ).fetchone()
        assert row is not None
        return int(row[0]), float(row[1])

    def check_alive(self) -> None:
        for process in self.processes:
            if process.poll() is not None:
                raise RuntimeError(f"a daemon ended with {process.returncode}; see {LOG}")


def _forbid(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into search_outbox_controls (scope, kind, paused_by, reason)"
            " values ('*', 'pause', 'bench', 'between rounds') on conflict do nothing"
        )


def _last_is_done(connection: psycopg.Connection) -> bool:
    """One row by its key, which costs almost nothing: until it is true the drain continues."""
    row = connection.execute(
        "select processed_at is not null or failed_at is not null from search_outbox_events order by id desc limit 1"
    ).fetchone()
    return row is None or bool(row[0])


def _first(connection: psycopg.Connection, where: str, floor: int | None = 0) -> int | None:
    """From a lower limit: dead entries below it, which a pinned snapshot keeps, are not read repeatedly."""
    query = f"select seq from search_outbox_events where {where} and seq >= %s order by seq limit 1"
    row = connection.execute(query, [floor or 0]).fetchone()
    return int(row[0]) if row else None


@contextmanager
def daemons(
    url: str,
    elastic_url: str,
    index: str,
    *,
    count: int = 1,
    settings: Mapping[str, str] | None = None,
    paused: bool = False,
) -> Iterator[Daemons]:
    """`paused`: before they start. A daemon is up within half a second and would claim what is to be measured later."""
    if paused:
        _forbid(url)
    LOG.parent.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTBOX_", "ELASTIC_", "DATABASE_URL"))}
    environ = {
        **kept,
        "DATABASE_URL": url,
        "ELASTIC_URL": elastic_url,
        "ELASTIC_INDEX": index,
        "OUTBOX_METRICS_PORT": "0",
        "OUTBOX_LOG_FORMAT": "json",
        "OUTBOX_LOG_LEVEL": "warning",
        **(settings or {}),
    }
    processes: list[subprocess.Popen[bytes]] = []
    with LOG.open("ab") as log:
        try:
            for _ in range(count):
                command = [sys.executable, "-m", "outbox", "run"]
                processes.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))
            yield Daemons(url, processes)
        finally:
            stop(*processes)


def cpu_seconds(processes: Sequence[subprocess.Popen[bytes]]) -> float:
    """Of these and their children. Ended processes are not counted, so it is read before they end."""
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            for each in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    total += sum(each.cpu_times()[:2])
    return total


def stop(*processes: subprocess.Popen[Any]) -> None:
    """All get the signal before the first wait: their grace periods run in parallel."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def stopped(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Make sure that this process ends."""
    try:
        yield
    finally:
        stop(process)
