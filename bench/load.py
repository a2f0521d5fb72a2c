"""Documents and tables for benchmarks, made outside the measured processes."""

from collections.abc import Iterator

import psycopg

WORDS = "outbox projector search index document version lease token batch settle reclaim retry replay audit lane"


def document_sql(size: int) -> str:
    """SQL for a JSON object of about `size` bytes whose words differ from row to row."""
    filler = max(1, size - 90)
    return f"""json_build_object(
        'title', 'Article ' || g || ' ' || md5(g::text),
        'n', g,
        'body', left(repeat(md5((g * 7)::text) || ' {WORDS} ', {filler // 60 + 1}), {filler}))"""


def fill(url: str, events: int, size: int, *, deletes_every: int = 0) -> None:
    """`events` pending rows, each of an entity of its own, and fresh statistics."""
    op = f"case when g %% {deletes_every} = 0 then 'delete' else 'upsert' end" if deletes_every else "'upsert'"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate search_outbox_events, search_outbox_leases, search_outbox_attempts")
        connection.execute(
            f"insert into search_outbox_events (entity_type, entity_id, op, payload) "
            f"select 'article', g::text, {op}, {document_sql(size)} from generate_series(1, %s) g",
            [events],
        )
        connection.execute("vacuum analyze search_outbox_events")
        connection.execute("checkpoint")


def bulk_bodies(url: str, index_actions: int) -> Iterator[bytes]:
    """The same documents as raw bulk bodies: same ids, same versions, `index_actions` a request."""
    with psycopg.connect(url) as connection, connection.cursor("bodies") as cursor:
        cursor.itersize = 5_000
        cursor.execute(
            "select entity_type || ':' || entity_id, event_version, payload::text"
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
