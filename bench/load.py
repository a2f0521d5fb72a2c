"""Documents and tables for benchmarks, made outside the measured processes."""

from collections.abc import Iterator

import psycopg

from bench.prose import cut_sql

_SENTENCE = "outbox projector search index document version lease token batch settle reclaim retry replay audit lane"


def document_sql(size: int, *, prose: bool = True) -> str:
    """SQL for a JSON object of about `size` bytes that differs per row: text, or one repeated sentence."""
    filler = max(1, size - 90)
    repeated = f"left(repeat(md5((g * 7)::text) || ' {_SENTENCE} ', {filler // 60 + 1}), {filler})"
    return f"""json_build_object(
        'title', 'Article ' || g || ' ' || md5(g::text),
        'n', g,
        'body', {cut_sql(filler) if prose else repeated})"""


def text_of(size: int, *, prose: bool = True) -> str:
    """What `document_sql` makes, in words."""
    return f"{'text' if prose else 'one sentence repeated'}, {size:,} B"


VIEW = """
drop view if exists search_documents;
drop table if exists bench_articles;
create table bench_articles (id text primary key, title text not null, n int not null, body text not null);
create view search_documents as
    select 'article'::text as entity_type, id as entity_id,
           json_build_object('title', title, 'n', n, 'body', body) as document
      from bench_articles
"""


def make_view(url: str, events: int, size: int, *, prose: bool = True) -> None:
    """The same documents as rows of a table, behind the view that the daemon reads."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(VIEW.encode())
        connection.execute(
            "insert into bench_articles (id, title, n, body)"
            " select g::text, d ->> 'title', g, d ->> 'body'"
            f" from generate_series(1, %s) g, lateral (select {document_sql(size, prose=prose)}) made (d)".encode(),
            [events],
        )
        connection.execute("vacuum analyze bench_articles")


def fill(
    url: str,
    events: int,
    size: int,
    *,
    deletes_every: int = 0,
    lookup: bool = False,
    prose: bool = True,
    age_seconds: int = 0,
    kind: str = "article",
) -> None:
    """`events` pending rows, each of its own entity, and new statistics. `lookup`: without a payload. `age_seconds`:
    what is older than half a minute when it is claimed is checked against newer deletes. `kind`: where the view has
    articles, events with payloads are of another type, whose name is as long."""
    payload = "null" if lookup else document_sql(size, prose=prose)
    op = f"case when g %% {deletes_every} = 0 then 'delete' else 'upsert' end" if deletes_every else "'upsert'"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate search_outbox_events, search_outbox_leases, search_outbox_attempts")
        connection.execute(
            f"insert into search_outbox_events (entity_type, entity_id, op, payload, created_at) "
            f"select %s, g::text, {op}, {payload}, now() - make_interval(secs => %s)"
            " from generate_series(1, %s) g",
            [kind, age_seconds, events],
        )
    rest(url)


def rest(url: str) -> None:
    """Vacuum, statistics and a checkpoint now, so that none of them runs during a measurement."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze search_outbox_events")
        connection.execute("checkpoint")


def bulk_bodies(url: str, index_actions: int, *, lookup: bool = False) -> Iterator[bytes]:
    """The same documents as raw bulk bodies: same ids, same versions, `index_actions` per request."""
    with psycopg.connect(url) as connection, connection.cursor("bodies") as cursor:
        cursor.itersize = 5_000
        cursor.execute(
            "select e.entity_type || ':' || e.entity_id, e.event_version, coalesce(e.payload, d.document)::text"
            " from search_outbox_events e left join search_documents d using (entity_type, entity_id) order by e.seq"
            if lookup
            else "select entity_type || ':' || entity_id, event_version, payload::text"
            " from search_outbox_events order by seq"
        )
        lines: list[bytes] = []
        for id, version, payload in cursor:
            action = f'{{"index":{{"_id":"{id}","version":{version},"version_type":"external_gte"}}}}'
            lines.append(f"{action}\n{payload}\n".encode())
            if len(lines) == index_actions:
                yield b"".join(lines)
                lines = []
        if lines:
            yield b"".join(lines)
