"""Owns what the drill of an upgrade knows of joined documents: articles whose authors are renamed while they move. The
old release attaches the tables; its own workers must never meet a fan-out, and no name may stay stale."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from elasticsearch import Elasticsearch

from tests.compat.evidence import Check, Connection, value

TYPE = "linked"
ARTICLES, AUTHORS = 40, 8
TABLES = f"""
create table authors (id int primary key, name text not null);
create table articles (id int primary key, author_id int not null references authors);
create view search_documents as
    select '{TYPE}'::text as entity_type, a.id::text as entity_id,
           json_build_object('title', a.id::text, 'content', u.name, 'revision', 0) as document
      from articles as a join authors as u on u.id = a.author_id;
"""
ROWS = f"""
insert into authors select n, 'first' from generate_series(1, {AUTHORS}) as n;
insert into articles select n, 1 + n % {AUTHORS} from generate_series(1, {ARTICLES}) as n;
"""
ATTACH = (
    ("attach", "articles", "--type", TYPE, "--id", "id"),
    ("attach", "authors", "--type", TYPE, "--via", "select id from articles where author_id = changed.id"),
)
DETACH = ("detach", "authors", "--type", TYPE, "--yes")
PAUSE_SECONDS = 0.1


@contextmanager
def writing(database_url: str, seed: int) -> Iterator[None]:
    """Renames and moves, some in one transaction, until the block ends."""
    stopping = threading.Event()
    thread = threading.Thread(target=_write, args=(database_url, random.Random(seed), stopping))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(30)


def _write(database_url: str, dice: random.Random, stopping: threading.Event) -> None:
    rename, move = "update authors set name = %s where id = %s", "update articles set author_id = %s where id = %s"
    written = 0
    with psycopg.connect(database_url) as conn:
        while not stopping.wait(PAUSE_SECONDS):
            written += 1
            if dice.random() < 0.6:
                conn.execute(rename, [f"name {written}", dice.randint(1, AUTHORS)])
            if dice.random() < 0.6:
                conn.execute(move, [dice.randint(1, AUTHORS), dice.randint(1, ARTICLES)])
            conn.commit()


def fanouts(connection: Connection, status: str = "%") -> int:
    query = "select count(*) from search_outbox_events where op = 'fanout' and status like %s"
    return int(value(connection, query, status))


def judged(connection: Connection, elastic: Elasticsearch, index: str) -> Iterator[Check]:
    wanted = dict(connection.execute("select entity_id, document ->> 'content' from search_documents").fetchall())
    elastic.indices.refresh(index=index)
    found = elastic.mget(index=index, ids=[f"{TYPE}:{id}" for id in wanted])["docs"]
    held = {each["_id"].partition(":")[2]: each["_source"]["content"] for each in found if each.get("found")}
    stale = sorted(id for id, name in wanted.items() if held.get(id) != name)
    yield Check("every article has its author's name", not stale, f"{len(wanted)} compared, stale: {stale[:3]}")
    failed = value(
        connection, "select count(*) from search_outbox_events where entity_type = %s and failed_at is not null", TYPE
    )
    yield Check("no event of them failed", failed == 0, f"{failed} failed")
