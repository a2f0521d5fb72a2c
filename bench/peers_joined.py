"""The part of `peers` with documents of two tables: articles with their comments nested, of which one per article
changes while outbox (by `attach` and a view) or PGSync (by its nested schema) follows.

Every wait has a limit. What a side has not shown within its limits becomes a note, and counts as one change in
`LIMIT_SECONDS`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import Thread

import psycopg

from bench import pgsync
from bench.arrivals import PACE, Arrivals, DidNotFollow
from bench.load import bulk_bodies, document_sql, text_of
from bench.pgsync import Processes
from bench.poller import BATCH
from bench.prose import cut_sql
from bench.raw import send
from bench.result import BenchmarkResult, Threshold, percentile, progress
from bench.stack import BenchmarkServers
from bench.worker import cpu_seconds, daemons, stopped
from outbox.store.attach.attach import attach

SHARE = Threshold("joined: share of raw _bulk / PGSync's best", 1.0, 1.0)
CPU = Threshold("joined: CPU of our processes / PGSync's", 0.08, 0.08, most=True)
P50 = Threshold("joined: p50 / PGSync's best", 1.0, 0.5, most=True)
P99 = Threshold("joined: p99 / PGSync's best", 1.0, 0.5, most=True)
RAW, OURS, TRIGGERS, STREAM = "joined: raw _bulk", "joined: outbox", "joined: PGSync, triggers", "joined: PGSync, WAL"
MODES = {TRIGGERS: pgsync.TRIGGERS, STREAM: pgsync.WAL}
SIDES = (OURS, *MODES)
UNITS = {"rate": "docs/s", "CPU": "us/event", "p50": "ms", "p99": "ms"}
LIMIT_SECONDS = 40.0
START_SECONDS = 60  # one article each, whose comment shows whether a tool follows
ARTICLE_BYTES, COMMENT_BYTES, COMMENTS = 500, 100, 3
DOCUMENTS = f"{text_of(ARTICLE_BYTES)}, with {COMMENTS} comments of {COMMENT_BYTES} B"
CHANGED = 1_000  # in `n` of a comment
AT_ONCE = 1_000  # rows of one transaction, as in an import
RAW_PASSES = 3  # over what is there already, as the changes; one would take half a second
CONNECTIONS = 2  # as our lanes
TABLES = """
create table bench_articles (id text primary key, title text not null, n int not null, body text not null);
create table bench_comments (id text primary key, article_id text not null references bench_articles, n int not null,
                             body text not null);
create index on bench_comments (article_id)
"""
VIEW = """
create view search_documents as
    select 'a'::text as entity_type, a.id as entity_id,
           json_build_object('id', a.id, 'title', a.title, 'n', a.n, 'body', a.body, 'comments',
               (select json_agg(json_build_object('id', c.id, 'n', c.n, 'body', c.body))
                  from bench_comments c where c.article_id = a.id)) as document
      from bench_articles a
"""
NODES = {
    "table": "bench_articles",
    "columns": ["id", "title", "n", "body"],
    "children": [
        {
            "table": "bench_comments",
            "label": "comments",
            "columns": ["id", "n", "body"],
            "relationship": {"variant": "object", "type": "one_to_many"},
        }
    ],
}
ARTICLES = (
    "insert into bench_articles (id, title, n, body) select g::text, d ->> 'title', g, d ->> 'body'"
    f" from generate_series(1, %s::int) g, lateral (select {document_sql(ARTICLE_BYTES)}) made (d)"
)
THEIR_COMMENTS = (
    f"insert into bench_comments (id, article_id, n, body) select a || '-' || k, a::text, k, {cut_sql(COMMENT_BYTES)}"
    f" from generate_series(1, %s::int) a, generate_series(1, {COMMENTS}) k,"
    f" lateral (select a * {COMMENTS} + k) made (g)"
)
REFRESHES = (
    "insert into search_outbox_events (entity_type, entity_id, op) select 'a', id, 'refresh' from bench_articles"
)
CHANGES = (
    f"update bench_comments set n = {CHANGED}"
    " where id = any (array(select g || '-1' from generate_series(%s::int, %s::int) g))"
)


class ChangedArticles(Arrivals):
    """Counts those of the first `documents` whose comment has arrived with its change."""

    def __init__(self, stack: BenchmarkServers, index: str, documents: int) -> None:
        super().__init__(stack, index)
        self.query = f"n:[1 TO {documents}] AND comments.n:{CHANGED}"

    def among(self, ids: list[str]) -> list[str]:
        reply = self._client.mget(index=self._index, ids=ids, source_includes=["comments.n"])
        found = {each["_id"]: each.get("_source", {}).get("comments") or () for each in reply["docs"]}
        return [id for id, comments in found.items() if any(comment["n"] == CHANGED for comment in comments)]


class Joined:
    """One round of each side, each in a new database and index of the same servers. Articles 1 to `documents` change at
    once, the next `paced` at a pace, the last ones while a tool starts."""

    def __init__(
        self,
        stack: BenchmarkServers,
        pgsync_stack: BenchmarkServers,
        result: BenchmarkResult,
        documents: int,
        paced: int,
        quiet: Callable[[], None],
    ) -> None:
        self.stack, self.pgsync_stack, self.result, self.quiet = stack, pgsync_stack, result, quiet
        self.documents, self.paced = documents, paced
        self.articles = documents + paced + START_SECONDS

    def one_round(self, number: int) -> None:
        """Raw first and last; the sides between them in another order each time."""
        first = number % len(SIDES)
        seconds = self._raw()
        for name in SIDES[first:] + SIDES[:first]:
            self.side(name)
        self.result.add(RAW, "docs/s", 2 * RAW_PASSES * self.articles / (seconds + self._raw()))

    def side(self, name: str) -> None:
        progress(f"{name}: {self.paced} changes at {PACE} per second, then {self.documents:,}")
        late = LIMIT_SECONDS * 1e3
        found = {"rate": 1 / LIMIT_SECONDS, "CPU": LIMIT_SECONDS * 1e6, "p50": late, "p99": late}
        try:
            if name == OURS:
                self._outbox(found)
            else:
                self._pgsync(name, found)
        except DidNotFollow as problem:
            if self.result.smoke:
                raise
            self.result.notes.append(f"{name}: {problem}")
        for label, unit in UNITS.items():
            self.result.add(f"{name}: {label}", unit, found[label])

    @cached_property
    def _bodies(self) -> list[bytes]:
        with self.stack.database() as url:
            self._fill(url, TABLES, VIEW, ARTICLES, THEIR_COMMENTS, REFRESHES)
            return list(bulk_bodies(url, BATCH, lookup=True))

    def _raw(self) -> float:
        progress(f"{RAW}: {self.articles:,} documents, {RAW_PASSES} times")
        with self._index() as index:
            send(self.stack.elastic_url, index, self._bodies, CONNECTIONS)
            self.quiet()
            return send(self.stack.elastic_url, index, self._bodies * RAW_PASSES, CONNECTIONS)

    def _outbox(self, found: dict[str, float]) -> None:
        with self.stack.database(notify=True) as url, self._index() as index:
            self._fill(url, TABLES, VIEW, ARTICLES, THEIR_COMMENTS, REFRESHES)
            with psycopg.connect(url, autocommit=True) as connection:
                attach(connection, "bench_articles", entity_type="a", id_column="id")
                attach(connection, "bench_comments", entity_type="a", id_column="article_id")
            with daemons(url, self.stack.elastic_url, index, settings={"OUTBOX_LISTEN": "true"}) as running:
                self._follow(OURS, url, index, running.processes, found)

    def _pgsync(self, name: str, found: dict[str, float]) -> None:
        with self._index() as index, pgsync.session(self.pgsync_stack, index, TABLES, NODES) as (url, tool, movers):
            self._fill(url, ARTICLES, THEIR_COMMENTS)
            tool.bootstrap()
            if MODES[name] == pgsync.WAL:
                tool.snapshot()
            movers.append(tool.start(MODES[name]))
            with stopped(movers[-1]):
                self._follow(name, url, index, movers, found)

    @contextmanager
    def _index(self) -> Iterator[str]:
        with self.stack.index() as index:
            self.stack.fresh_index(index)
            yield index

    def _fill(self, url: str, *statements: str) -> None:
        """Vacuumed: no autovacuum runs during a measurement."""
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode(), [self.articles] if "%s" in statement else None)
            connection.execute("vacuum analyze")

    def _follow(self, name: str, url: str, index: str, processes: Processes, found: dict[str, float]) -> None:
        """Latencies first: a tool that does not keep up with the other changes would be late for these."""
        changed, prefix = ChangedArticles(self.stack, index, self.documents), "a:" if name == OURS else ""

        def one(connection: psycopg.Connection, number: int) -> str:
            connection.execute(CHANGES.encode(), [self.documents + number] * 2)
            return f"{prefix}{self.documents + number}"

        self._ready(url, index, changed, one)
        self.quiet()
        took, late = changed.at_pace(url, self.paced, one)
        found["p50"], found["p99"] = (percentile(took, share) * 1e3 for share in (0.5, 0.99))
        changing = Thread(target=self._change_all, args=(url,), daemon=True)
        arrived = changed.watch(self.documents, lambda: cpu_seconds(processes), changing.start, LIMIT_SECONDS)
        changing.join(LIMIT_SECONDS)
        if late:
            self.result.notes.append(f"{name}: {late} of {self.paced} changes had not arrived 10 s after the last")
        if arrived.missing:
            problem = f"did not follow {arrived.missing:,} of {self.documents:,} changes within {LIMIT_SECONDS:.0f} s"
            if arrived.missing == self.documents:  # no figure: an idle process has the least CPU
                raise DidNotFollow(problem)
            self.result.notes.append(f"{name}: {problem}")
        found["rate"], found["CPU"] = arrived.rate, arrived.cpu_seconds * 1e6

    def _ready(
        self, url: str, index: str, changed: ChangedArticles, one: Callable[[psycopg.Connection, int], str]
    ) -> None:
        """Two changes in a row arrived within a second each, and all documents are there: everything is up. A single
        change may have arrived as part of a snapshot."""
        in_a_row = 0
        with psycopg.connect(url, autocommit=True) as connection:
            for number in range(START_SECONDS):
                id = one(connection, self.paced + 1 + number)
                time.sleep(1.0)
                in_a_row = in_a_row + 1 if changed.among([id]) else 0
                if in_a_row > 1 and Arrivals(self.stack, index).count() >= self.articles:
                    return
        raise DidNotFollow(f"did not follow within {START_SECONDS} s")

    def _change_all(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for first in range(1, self.documents + 1, AT_ONCE):
                connection.execute(CHANGES.encode(), [first, min(first + AT_ONCE - 1, self.documents)])


def judge(result: BenchmarkResult) -> None:
    for side in SIDES:
        result.divide(f"{side}: share of raw", f"{side}: rate", RAW)
    for bar, label, best in ((SHARE, "share of raw", max), (CPU, "CPU", min), (P50, "p50", min), (P99, "p99", min)):
        medians = {mode: result.median(f"{mode}: {label}") for mode in MODES}
        peer = best(medians, key=medians.__getitem__)
        name = f"joined: our {label} / {peer.removeprefix('joined: ')}"
        result.judge(bar, result.divide(name, f"{OURS}: {label}", f"{peer}: {label}"))
