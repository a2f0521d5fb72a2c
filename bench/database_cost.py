"""database_cost: CPU and WAL of PostgreSQL per event, for insert, claim, settle and pruning apart; beside them a plain
poller, PgQueuer and Procrastinate on the same server. No search server takes part."""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.load import document_sql, rest, text_of
from bench.poller import TABLE, TAKE
from bench.queues import PROGRAMS, QueueLibrary
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers, owner_of, tree_cpu
from outbox.policy.prune_steps import PrunePlace
from outbox.policy.settle import DONE
from outbox.ports import ClaimOrder
from outbox.store.events import PostgresEvents
from outbox.store.pool import Database
from outbox.store.retention import PostgresRetention

CPU = Threshold("claim and settle: CPU of PostgreSQL, us per event", 20, 16, most=True)
WAL = Threshold("claim and settle: WAL, bytes per event", 1_100, 900, most=True)
# Processes of the server that work for everybody. Its other processes are backends, of which ended ones count too.
BACKGROUND = ("walwriter", "checkpointer", "background writer", "autovacuum launcher", "io worker", "logger")
OURS, POLLER = "outbox", "poller"


def run(
    stack: BenchmarkServers,
    *,
    smoke: bool = False,
    rounds: int = 5,
    events: int = 40_000,
    size: int = 500,
    batch: int = 500,
    postgres: int = 18,
    stock: int = 0,
) -> BenchmarkResult:
    """`--set`: events, size, batch; postgres=15 for Debian's; stock=1 raises only shared_buffers and max_wal_size, 2
    nothing."""
    events, rounds = (1_000, 1) if smoke else (events, rounds)
    result = BenchmarkResult("database_cost", smoke)
    result.settings = {"events": events, "bytes": size, "batch": batch, "inserts": "one per transaction"}
    result.documents = text_of(size)
    result.notes.append("claimed soon after the insert: no checkpoint between, so no page is logged as a whole")
    with stack.on_postgres(postgres, stock) as own:
        with psycopg.connect(own.admin_url) as connection:
            result.servers = {"postgresql": str(connection.info.parameter_status("server_version"))}
        sides = [_ours, _pruning, _poller] + ([] if smoke else [_queue(name) for name in PROGRAMS])
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                side(_Bill(own, result, events, batch), size)
    for bar, unit in ((CPU, "CPU"), (WAL, "WAL")):
        claim, settle = (result.of(f"{OURS}, {phase}: {unit}").values for phase in ("claim", "settle"))
        for both in zip(claim, settle, strict=True):
            result.add(f"{OURS}, claim and settle: {unit}", "", sum(both))
        result.judge(bar, f"{OURS}, claim and settle: {unit}")
    return result


class _Bill:
    """What one side costs in one round, per event."""

    def __init__(self, stack: BenchmarkServers, result: BenchmarkResult, events: int, batch: int) -> None:
        self.stack, self.result, self.events, self.batch = stack, result, events, batch
        self.cpu: dict[str, float] = {}
        self.wal: dict[str, float] = {}
        self._server = owner_of(stack.embedded["postgresql"])

    @contextmanager
    def phase(self, name: str, pid: int | None = None) -> Iterator[None]:
        """Of one backend, or of all that the server has and had."""

        def read() -> float:
            return _backend(pid) if pid else sum(self._cpu())

        cpu, wal = read(), self._wal()
        yield
        self.cpu[name] = self.cpu.get(name, 0.0) + read() - cpu
        self.wal[name] = self.wal.get(name, 0.0) + self._wal() - wal

    @contextmanager
    def whole(self, side: str, url: str, table: str) -> Iterator[None]:
        _, before = self._cpu()
        yield
        time.sleep(1.0)  # what the background writes late belongs to this side too
        _, after = self._cpu()
        for phase, seconds in self.cpu.items():
            self.result.add(f"{side}, {phase}: CPU", "us/event", seconds * 1e6 / self.events)
            self.result.add(f"{side}, {phase}: WAL", "B/event", self.wal[phase] / self.events)
        self.result.add(f"{side}, background: CPU", "us/event", (after - before) * 1e6 / self.events)
        self._size(side, url, table)

    def _size(self, side: str, url: str, table: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(
                "select pg_total_relation_size(relid)::float8, n_dead_tup::float8 from pg_stat_user_tables"
                " where relname = %s",
                [table],
            ).fetchone()
        assert row is not None
        self.result.add(f"{side}: table and indexes", "B/event", row[0] / self.events)
        self.result.add(f"{side}: dead rows", "per event", row[1] / self.events)

    def _cpu(self) -> tuple[float, float]:
        """Of backends, and of the background."""
        background = 0.0
        for process in self._server:
            try:
                if any(word in " ".join(process.cmdline()) for word in BACKGROUND):
                    background += sum(process.cpu_times()[:2])
            except psutil.NoSuchProcess:
                continue
        return tree_cpu(self._server_now()) - background, background

    def _server_now(self) -> list[psutil.Process]:
        self._server = owner_of(self.stack.embedded["postgresql"])
        return self._server

    def _wal(self) -> float:
        with psycopg.connect(self.stack.admin_url, autocommit=True) as connection:
            row = connection.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8").fetchone()
        assert row is not None
        return float(row[0])


def _backend(pid: int) -> float:
    """Seconds of CPU, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _pid(connection: psycopg.Connection[Any]) -> int:
    return connection.info.backend_pid


def _insert(bill: _Bill, url: str, statement: str, size: int) -> None:
    """One per transaction, as producers do; the documents are made beforehand."""
    with psycopg.connect(url, autocommit=True) as connection:
        made = connection.execute(
            f"select {document_sql(size)}::text from generate_series(1, %s) g".encode(), [bill.events]
        ).fetchall()
        with bill.phase("insert", _pid(connection)):
            for number, (document,) in enumerate(made):
                connection.execute(statement.encode(), [str(number), document])


def _ours(bill: _Bill, size: int) -> None:
    insert = "insert into search_outbox_events (entity_type, entity_id, op, payload) values ('a', %s, 'upsert', %s)"
    with bill.stack.database() as url:
        rest(url)
        database = Database(url, size=1, prepared=os.environ.get("OUTBOX_PREPARE") != "false")
        database.open()
        events = PostgresEvents(
            database, owner="bench-1-abcdef", start_id=uuid.uuid4(), lease_seconds=60, batch_bytes=8_388_608
        )
        with bill.whole(OURS, url, "search_outbox_events"):
            _insert(bill, url, insert, size)
            with database.connection() as connection:
                pid = _pid(connection)
            _drain(bill, events, pid)
        database.close()


def _drain(bill: _Bill, events: PostgresEvents, pid: int) -> None:
    done = floor = 0
    while done < bill.events:
        with bill.phase("claim", pid):
            found = events.claim(ClaimOrder(uuid.uuid4(), bill.batch, bill.batch // 2, floor))
        floor = max(event.seq for event in found.events)
        with bill.phase("settle", pid):
            done += events.settle(found.token, [(event.id, DONE) for event in found.events]).kept


def _pruning(bill: _Bill, size: int) -> None:
    """Apart, because it asks for the newest done event of each entity, which needs the entity index: of two per entity
    one goes."""
    rows = f"""insert into search_outbox_events (entity_type, entity_id, op, payload, status, processed_at)
               select 'a', g::text, 'upsert', {document_sql(size)}, 'done', now() - interval '1 day'
                 from generate_series(1, %s) g, generate_series(1, 2)"""
    with bill.stack.database(by_entity=True) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(rows.encode(), [bill.events])
        rest(url)
        database = Database(url, size=1)
        database.open()
        with bill.whole(f"{OURS}, pruning", url, "search_outbox_events"):
            with database.connection() as connection:
                pid = _pid(connection)
            with bill.phase("prune", pid):
                _prune(PostgresRetention(database), bill.events)
        database.close()


def _prune(retention: PostgresRetention, events: int) -> None:
    before, place, removed = datetime.now(UTC), PrunePlace(), 0
    while True:
        step = retention.step(before, place, 5_000)
        if step is None or not step.looked_at:
            break
        removed, place = removed + step.removed, step.place
    if removed != events:
        raise RuntimeError(f"{removed} of {events} events were pruned")


def _poller(bill: _Bill, size: int) -> None:
    with bill.stack.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE)
        with bill.whole(POLLER, url, "poller_rows"):
            _insert(bill, url, "insert into poller_rows (entity_id, payload) values (%s, %s)", size)
            with psycopg.connect(url, autocommit=True) as connection:
                done, pid = 0, _pid(connection)
                while done < bill.events:
                    with connection.transaction():
                        with bill.phase("claim", pid):
                            rows = connection.execute(TAKE, [bill.batch]).fetchall()
                        with bill.phase("settle", pid):
                            ids = [row[0] for row in rows]
                            connection.execute("update poller_rows set done = true where id = any(%s)", [ids])
                    done += len(rows)


def _queue(name: str) -> Callable[[_Bill, int], None]:
    """Jobs of as many bytes, whose work is nothing. All of the server's backends: it is alone there."""
    table = {"PgQueuer": "pgqueuer", "Procrastinate": "procrastinate_jobs"}[name]

    def side(bill: _Bill, size: int) -> None:
        with bill.stack.database() as url:
            queue = QueueLibrary(name, url, json.dumps({"body": "x" * max(1, size - 12)}))
            queue.do("install")
            few = _Bill(bill.stack, bill.result, bill.events // 10, bill.batch)  # they do hundreds per second
            with few.whole(name, url, table):
                with few.phase("insert"):
                    queue.do("insert", str(few.events))
                with few.phase("work"):
                    queue.do("work")

    return side
