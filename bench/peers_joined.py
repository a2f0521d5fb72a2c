"""The part of `peers` with a document that joins two tables: each article has one comment, and the comments change
while outbox, or PGSync with its nested schema, follows. Rates as shares of raw `_bulk` of the same documents; CPU."""

import subprocess
from collections.abc import Callable
from threading import Thread

import psycopg

from bench.arrivals import Arrivals
from bench.load import document_sql
from bench.poller import BATCH
from bench.raw import send
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers
from bench.worker import daemons
from outbox.store.attach.attach import attach

SHARE = Threshold("joined: share of raw _bulk / PGSync's best", 1.0, 1.0)
CPU = Threshold("joined: CPU of our processes / PGSync's least", 0.08, 0.08, most=True)
RAW, OURS, TRIGGERS, STREAM = "joined: raw _bulk", "joined: outbox", "joined: PGSync, triggers", "joined: PGSync, WAL"
TABLES = """
create table bench_comments (id text primary key, article_id text not null references bench_articles, n int not null,
                             body text not null);
create index on bench_comments (article_id);
create view search_documents as
    select 'a'::text as entity_type, a.id as entity_id, null::bigint as version,
           json_build_object('id', a.id, 'title', a.title, 'n', a.n, 'body', a.body, 'bench_comments',
               (select json_agg(json_build_object('id', c.id, 'n', c.n, 'body', c.body))
                  from bench_comments c where c.article_id = a.id)) as document
      from bench_articles a
"""
CHILD = {
    "table": "bench_comments",
    "columns": ["id", "n", "body"],
    "relationship": {"variant": "object", "type": "one_to_many"},
}
ROWS = """
with made as (select g, %s::text || g as id, {document} as d from generate_series(%s::int, %s::int) g),
     article as (insert into bench_articles (id, title, n, body)
                 select id, d ->> 'title', g, d ->> 'body' from made returning id, n)
insert into bench_comments (id, article_id, n, body) select 'c' || id, id, 1, 'a comment of ' || n from article
"""
CHANGES = """
update bench_comments set n = 2
 where article_id = any (array(select %s::text || g from generate_series(%s::int, %s::int) g))
"""
DOCUMENTS = "select entity_id, document::text from search_documents order by entity_id"
AT_ONCE = 1_000  # rows of one transaction
CHANGED = "bench_comments.n:2"


def in_steps(url: str, statement: str, prefix: str, documents: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for first in range(1, documents + 1, AT_ONCE):
            connection.execute(statement.encode(), [prefix, first, min(first + AT_ONCE - 1, documents)])


def insert(url: str, documents: int, size: int) -> None:
    in_steps(url, ROWS.format(document=document_sql(size)), "j", documents)


class JoinedDocuments:
    """What each side is measured by; `cpu` reads the seconds of a tool's processes."""

    def __init__(
        self, stack: BenchmarkServers, result: BenchmarkResult, documents: int, size: int, quiet: Callable[[], None]
    ) -> None:
        self.stack, self.result, self.documents, self.size, self.quiet = stack, result, documents, size, quiet

    def raw(self, url: str, index: str) -> None:
        """Over two connections, as our lanes. The tables of `url` are filled."""
        with psycopg.connect(url) as connection:
            lines = [
                f'{{"index":{{"_id":"{id}"}}}}\n{body}\n'.encode()
                for id, body in connection.execute(DOCUMENTS.encode())
            ]
        bodies = [b"".join(lines[first : first + BATCH]) for first in range(0, len(lines), BATCH)]
        self.quiet()
        self.result.add(RAW, "docs/s", self.documents / send(self.stack.elastic_url, index, bodies, 2))

    def outbox(self, url: str, index: str, cpu: Callable[[list[subprocess.Popen[bytes]]], float]) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for table, column in (("bench_articles", "id"), ("bench_comments", "article_id")):
                attach(connection, table, entity_type="a", id_column=column)
        with daemons(url, self.stack.elastic_url, index, settings={"OUTBOX_LISTEN": "true"}) as running:
            self.follow(OURS, url, index, lambda: cpu(running.processes))

    def follow(self, name: str, url: str, index: str, cpu: Callable[[], float]) -> None:
        """The first documents are not measured: only changes of comments are."""
        progress(f"{name}: {self.documents:,} comments change")
        arrivals = Arrivals(self.stack, index, CHANGED)
        everything = Arrivals(self.stack, index)
        everything.watch(self.documents, cpu, lambda: insert(url, self.documents, self.size))
        self.quiet()
        changing = Thread(target=in_steps, args=(url, CHANGES, "j", self.documents))
        found = arrivals.watch(self.documents, cpu, changing.start)
        changing.join()
        self.result.add(f"{name}: rate", "docs/s", found.rate)
        self.result.add(f"{name}: CPU", "us/event", found.cpu_seconds * 1e6)


def judge(result: BenchmarkResult) -> None:
    for side in (OURS, TRIGGERS, STREAM):
        result.divide(f"{side}: share of raw", f"{side}: rate", RAW)
    best = max((TRIGGERS, STREAM), key=lambda mode: result.median(f"{mode}: share of raw"))
    least = min((TRIGGERS, STREAM), key=lambda mode: result.median(f"{mode}: CPU"))
    result.judge(SHARE, result.divide("joined: our share / best", f"{OURS}: share of raw", f"{best}: share of raw"))
    result.judge(CPU, result.divide("joined: our CPU / least", f"{OURS}: CPU", f"{least}: CPU"))
