"""peers: the same documents through outbox, PGSync in its three modes and a plain poller, each as a share of raw
`_bulk` in the same round; latency, CPU per event. Then the same for documents of two tables (`peers_joined`)."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import psycopg

from bench import peers_joined, pgsync
from bench.arrivals import PACE, Arrivals
from bench.drain import warm_up
from bench.load import bulk_bodies, document_sql, text_of
from bench.pgsync import VERSION, PgSync, Processes, installed, postgres_programs, redis_program, session
from bench.poller import BATCH, TABLE
from bench.raw import send
from bench.result import BenchmarkResult, CannotRun, Threshold, percentile, progress
from bench.stack import POSTGRES, BenchmarkServers
from bench.tools import HOME
from bench.worker import cpu_seconds, daemons, stop, stopped
from outbox.embedded import EmbeddedPostgres

SHARE = Threshold("share of raw _bulk / the best peer's", 1.0, 1.0)
POLLER_CPU = Threshold("CPU of our processes / the poller's", 0.4, 0.4, most=True)
LIVE_CPU = Threshold("CPU of our processes / PGSync live's", 0.08, 0.08, most=True)
P50 = Threshold("p50 / PGSync's best", 1.0, 0.5, most=True)
P99 = Threshold("p99 / PGSync's best", 1.0, 0.5, most=True)
RAW, OURS, POLLER = "raw _bulk", "outbox", "poller"
SNAPSHOT, TRIGGERS, STREAM = "PGSync snapshot", "PGSync live, triggers", "PGSync live, WAL"
PEERS, LIVE = (POLLER, SNAPSHOT, TRIGGERS, STREAM), (TRIGGERS, STREAM)
RAW_CONNECTIONS = 2  # as our lanes
ARTICLES = """
create table bench_articles (id text primary key, title text not null, n int not null, body text not null)
"""
NODES = {"table": "bench_articles", "columns": ["id", "title", "n", "body"]}  # of PGSync's schema
# How a change enters each tool: what a producer would do in its own transaction.
INSERTS = {
    "outbox": "insert into search_outbox_events (entity_type, entity_id, op, payload) select 'a', id, 'upsert', d",
    "poller": "insert into poller_rows (entity_id, payload) select id, d::jsonb",
    "pgsync": "insert into bench_articles (id, title, n, body)"
    " select id, d ->> 'title', (d ->> 'n')::int, d ->> 'body'",
}


def run(
    stack: BenchmarkServers,
    *,
    smoke: bool = False,
    rounds: int = 3,
    documents: int = 100_000,
    size: int = 500,
    paced: int = 600,
    joined: int = 10_000,
) -> BenchmarkResult:
    documents, paced, joined, rounds = (300, 20, 100, 1) if smoke else (documents, paced, joined, rounds)
    if "elasticsearch" not in stack.versions():
        raise CannotRun("PGSync and the poller use Elasticsearch's client, which refuses other products")
    installed()
    redis_program()
    programs = postgres_programs()
    result = BenchmarkResult("peers", smoke)
    result.settings = {"documents": documents, "bytes": size, "paced events": paced, "pace": PACE, "pgsync": VERSION}
    result.settings["joined documents"] = joined
    result.documents = f"{text_of(size)}; joined: {peers_joined.DOCUMENTS}"
    result.notes.append("all on Debian's PostgreSQL, which has the test_decoding that PGSync needs")
    result.notes.append("CPU: of the tool's own processes, including redis; without PostgreSQL and Elasticsearch")
    result.notes.append("PGSync has its own server with wal_level=logical, so that the others do not pay for it")
    result.notes.append("the poller waits for its commits to be on disk, ours need not: see docs/performance.md")
    with (
        EmbeddedPostgres.temporary(settings=POSTGRES, bin_dir=programs) as plain,
        EmbeddedPostgres.temporary(settings={**POSTGRES, "wal_level": "logical"}, bin_dir=programs) as logical,
    ):
        on_plain, on_logical = (BenchmarkServers(server.url, stack.elastic_url) for server in (plain, logical))
        result.servers = on_plain.versions()
        bench = _Bench(on_plain, on_logical, result, documents, size, paced, stack.quiet)
        both = peers_joined.Joined(on_plain, on_logical, result, joined, paced // 3, stack.quiet)
        if not smoke:
            bench.warm_up()
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            bench.one_round(number)
            both.one_round(number)
    judge(result)
    peers_joined.judge(result)
    return result


def judge(result: BenchmarkResult) -> None:
    for side in (OURS, *PEERS):
        result.divide(f"{side}: share of raw", f"{side}: rate", RAW)
    best = max(PEERS, key=lambda peer: result.median(f"{peer}: share of raw"))
    result.judge(SHARE, result.divide(f"our share / {best}'s", f"{OURS}: share of raw", f"{best}: share of raw"))
    result.judge(POLLER_CPU, result.divide("our CPU / poller's", f"{OURS}: CPU", f"{POLLER}: CPU"))
    least = min(LIVE, key=lambda mode: result.median(f"{mode}: CPU"))
    result.judge(LIVE_CPU, result.divide(f"our CPU / {least}'s", f"{OURS}: CPU", f"{least}: CPU"))
    for bar, name in ((P50, "p50"), (P99, "p99")):
        quickest = min(LIVE, key=lambda mode: result.median(f"{mode}: {name}"))
        ours = result.divide(f"our {name} / {quickest}'s", f"{OURS}: {name}", f"{quickest}: {name}")
        result.judge(bar, ours)


class _Bench:
    """One round of each side, each in a new database and index of the same servers."""

    def __init__(
        self,
        stack: BenchmarkServers,
        pgsync_stack: BenchmarkServers,
        result: BenchmarkResult,
        documents: int,
        size: int,
        paced: int,
        quiet: Callable[[], None],
    ) -> None:
        self.stack, self.pgsync_stack, self.result = stack, pgsync_stack, result
        self.documents, self.size, self.paced = documents, size, paced
        self.quiet = quiet  # Elasticsearch's merges of one side must not slow down the next

    def one_round(self, number: int) -> None:
        """Raw first and last, because the speed of a shared machine changes within a round; the sides between them in
        another order each time."""
        sides = (self.outbox, self.poller, self.snapshot, self.triggers, self.stream)
        first = number % len(sides)
        bodies = self._bodies()
        seconds = self._raw(bodies)
        for side in sides[first:] + sides[:first]:
            side()
        self.result.add(RAW, "docs/s", 2 * self.documents / (seconds + self._raw(bodies)))

    def _bodies(self) -> list[bytes]:
        with self.stack.database() as url:
            self._fill(url, "outbox")
            return list(bulk_bodies(url, BATCH))

    def _raw(self, bodies: list[bytes]) -> float:
        progress(f"{RAW}: {self.documents:,} documents")
        with self._index() as index:
            self.quiet()
            return send(self.stack.elastic_url, index, bodies, RAW_CONNECTIONS)

    def warm_up(self) -> None:
        """By raw requests, as for the drain: else the first side would pay for Java's compilation."""
        with self.stack.database() as url, self._index() as index:
            warm_up(self.stack, url, index, self.size)

    def outbox(self) -> None:
        with (
            self.stack.database(notify=True) as url,
            self._index() as index,
            daemons(url, self.stack.elastic_url, index, settings={"OUTBOX_LISTEN": "true"}) as running,
        ):
            self._ready(url, "outbox", index)
            running.pause()
            self._fill(url, "outbox")
            self._rate(OURS, index, running.processes, running.resume)
            self._latency(OURS, url, "outbox", index)

    def poller(self) -> None:
        with self.stack.database() as url, self._index() as index:
            self._execute(url, TABLE)
            command = [sys.executable, "-m", "bench.poller", url, self.stack.elastic_url, index]
            self._fill(url, "poller")
            started: Processes = []
            try:
                self._rate(POLLER, index, started, lambda: started.append(subprocess.Popen(command)))
                self._latency(POLLER, url, "poller", index)
            finally:
                stop(*started)

    def snapshot(self) -> None:
        with self._pgsync() as (url, index, tool, movers):
            self._fill(url, "pgsync")
            tool.bootstrap()
            try:
                self._rate(SNAPSHOT, index, movers, lambda: movers.append(tool.start()))
            finally:
                stop(*movers[1:])  # the first is redis, which is stopped separately

    def triggers(self) -> None:
        self._live(TRIGGERS, pgsync.TRIGGERS)

    def stream(self) -> None:
        self._live(STREAM, pgsync.WAL)

    def _live(self, name: str, mode: str) -> None:
        with self._pgsync() as (url, index, tool, movers):
            tool.bootstrap()
            movers.append(tool.start(mode))
            with stopped(movers[-1]):
                self._ready(url, "pgsync", index)
                self._make(url)
                self._rate(name, index, movers, Thread(target=self._insert, args=(url, "pgsync")).start)
                self._latency(name, url, "pgsync", index)

    @contextmanager
    def _pgsync(self) -> Iterator[tuple[str, str, PgSync, Processes]]:
        with self._index() as index, session(self.pgsync_stack, index, ARTICLES, NODES) as (url, tool, movers):
            yield url, index, tool, movers

    @contextmanager
    def _index(self) -> Iterator[str]:
        with self.stack.index() as index:
            self.stack.fresh_index(index)
            yield index

    def _execute(self, url: str, statement: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _fill(self, url: str, way: str) -> None:
        """Vacuumed, as for the drain: no autovacuum runs during a measurement."""
        self._make(url)
        self._insert(url, way)
        self._execute(url, f"vacuum analyze {INSERTS[way].split()[2]}")

    def _make(self, url: str) -> None:
        """Made in advance: PGSync's live modes run together with their producer, which should not spend time on making
        text."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                f"create unlogged table made as select g, g::text as id, {document_sql(self.size)} as d"
                " from generate_series(1, %s::int) g".encode(),
                [self.documents],
            )
            connection.execute("create index on made (g)")
            connection.execute("vacuum analyze made")

    def _insert(self, url: str, way: str) -> None:
        """In transactions of 1,000, as an import does."""
        made = f"{INSERTS[way]} from made where g between %s and %s"
        with psycopg.connect(url, autocommit=True) as connection:
            for start in range(0, self.documents, 1_000):
                connection.execute(made.encode(), [start + 1, start + 1_000])

    def _one(self, connection: psycopg.Connection, way: str, number: int, prefix: str) -> None:
        # `offset 0`: a document is made once, however often a side's insert names it.
        source = f"(select %s || g as id, {document_sql(self.size)} as d from (values (%s::int)) v (g) offset 0) made"
        connection.execute(f"{INSERTS[way]} from {source}".encode(), [prefix, number])

    def _ready(self, url: str, way: str, index: str) -> None:
        """One document has arrived: everything is up. Whether one is lost during the start is not measured."""
        arrivals = Arrivals(self.stack, index)
        ends = time.monotonic() + 120
        number = 0
        with psycopg.connect(url, autocommit=True) as connection:
            while not arrivals.total():
                number += 1
                self._one(connection, way, number, "ready")
                time.sleep(1.0)
                if time.monotonic() > ends:
                    raise TimeoutError(f"{way} moves nothing; see {HOME.name}/pgsync.log")

    def _rate(self, name: str, index: str, processes: Processes, begin: Callable[[], object]) -> None:
        progress(f"{name}: {self.documents:,} documents")
        self.quiet()
        arrivals = Arrivals(self.stack, index)
        found = arrivals.watch(self.documents, lambda: cpu_seconds(processes), begin)
        if found.missing:
            self.result.notes.append(f"{name}: {found.missing:,} of {self.documents:,} did not arrive in time")
        self.result.add(f"{name}: rate", "docs/s", found.rate)
        self.result.add(f"{name}: CPU", "us/event", found.cpu_seconds * 1e6)

    def _latency(self, name: str, url: str, way: str, index: str) -> None:
        progress(f"{name}: {self.paced} events at {PACE} per second")
        prefix = "a:slow" if way == "outbox" else "slow"

        def one(connection: psycopg.Connection, number: int) -> str:
            self._one(connection, way, number, "slow")
            return f"{prefix}{number}"

        took, missing = Arrivals(self.stack, index).at_pace(url, self.paced, one)
        if missing:
            self.result.notes.append(f"{name}: {missing} of {self.paced} changes had not arrived 10 s after the last")
        for share, label in ((0.5, "p50"), (0.99, "p99")):
            self.result.add(f"{name}: {label}", "ms", percentile(took, share) * 1000)
