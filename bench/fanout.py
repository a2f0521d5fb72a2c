"""fanout: one UPDATE of an author with many articles, up to the last document, and what it costs the writer."""

import time

import psycopg

from bench.drain import warm_up
from bench.load import document_sql, fill, rest, text_of
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers
from bench.worker import Daemons, daemons
from outbox.store.attach.attach import attach, detach

RATE = Threshold("documents of one UPDATE / drain of payload events", 0.5, 0.7)
VIA = Threshold("UPDATE with its refreshes / insert of as many events", 1.5, 1.2, most=True)

SIZE = 500
TABLES = f"""
create table authors (id bigint primary key, name text not null);
create table articles (id bigint primary key, author_id bigint not null, n int not null, made json not null);
insert into authors values (1, 'An author');
insert into articles select g, 1, g, {document_sql(SIZE - 40)} from generate_series(1, %s) g;
create index on articles (author_id);
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id,
           json_build_object('title', a.made ->> 'title', 'n', a.n, 'body', a.made ->> 'body',
                             'author', u.name) as document
      from articles a join authors u on u.id = a.author_id;
"""
AUTHOR = "update authors set name = name || '.'"
EVENTS = (
    "insert into search_outbox_events (entity_type, entity_id, op) select 'article', id::text, 'refresh' from articles"
)


def run(stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, articles: int = 100_000) -> BenchmarkResult:
    """`--set`: articles."""
    articles, rounds = (500, 1) if smoke else (articles, rounds)
    result = BenchmarkResult("fanout", smoke)
    result.documents = f"{text_of(SIZE)}, of two joined tables"
    result.settings = {"articles": articles, "bytes per document": SIZE, "lanes": 2}
    with stack.database() as url, stack.index() as index, stack.index() as warm_index:
        if not smoke:
            warm_up(stack, url, warm_index, SIZE)
        stack.fresh_index(index)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute((TABLES % articles).encode())
            connection.execute("vacuum analyze articles, authors")
            with daemons(url, stack.elastic_url, index) as running:
                running.pause()
                for number in range(rounds):
                    progress(f"round {number + 1} of {rounds}")
                    _documents(stack, url, index, connection, running, articles, result)
                    _costs(connection, result)
    result.judge(RATE, "fanout / drain")
    result.judge(VIA, "author's UPDATE / insert")
    return result


def _documents(
    stack: BenchmarkServers,
    url: str,
    index: str,
    connection: psycopg.Connection,
    running: Daemons,
    articles: int,
    result: BenchmarkResult,
) -> None:
    """Both with running daemons: waiting payload events, and the refreshes of one commit."""
    fill(url, articles, SIZE, kind="posting")
    stack.fresh_index(index)
    stack.quiet()
    running.resume()
    drained = articles / running.wait_done(articles)
    connection.execute("truncate search_outbox_events")
    rest(url)
    stack.fresh_index(index)
    stack.quiet()
    _attach(connection, "authors", via="select id from articles where author_id = changed.id")
    connection.execute(AUTHOR)
    committed = time.time()
    running.wait_done(articles)
    last = connection.execute(
        "select extract(epoch from max(processed_at))::float8 from search_outbox_events"
    ).fetchone()
    detach(connection, "authors")
    running.pause()
    assert last is not None
    fanned = articles / (last[0] - committed)
    result.add("drain of payload events", "events/s", drained)
    result.add("documents of one UPDATE", "docs/s", fanned)
    result.add("fanout / drain", "", fanned / drained)


def _costs(connection: psycopg.Connection, result: BenchmarkResult) -> None:
    """The cost for the writer, without a projector."""
    inserted = seconds_of(connection, EVENTS)
    _attach(connection, "authors", via="select id from articles where author_id = changed.id")
    author = seconds_of(connection, AUTHOR)
    detach(connection, "authors")
    connection.execute("truncate search_outbox_events")
    result.add("author's UPDATE with its refreshes", "ms", author * 1000)
    result.add("insert of as many events", "ms", inserted * 1000)
    result.add("author's UPDATE / insert", "", author / inserted)


def _attach(connection: psycopg.Connection, table: str, via: str) -> None:
    attach(connection, table, entity_type="article", via=via)


def seconds_of(connection: psycopg.Connection, statement: str) -> float:
    connection.execute("truncate search_outbox_events")
    connection.execute("vacuum articles")
    connection.execute("checkpoint")
    began = time.perf_counter()
    connection.execute(statement.encode())
    return time.perf_counter() - began
