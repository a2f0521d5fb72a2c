"""Measures what attachments cost, as ratios within one run; no test: `python -m tests.integration.attachment_cost URL`.

URL is a migrated database of its own: the events in it and the schema `cost` are removed."""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg

from outbox.store.producers import attach, detach

ROWS = 100_000
TURNS = 3
UPDATE = "update articles set price = price + 1"
INSERT = (
    "insert into search_outbox_events (entity_type, entity_id, op) select 'article', id::text, 'refresh' from articles"
)
VIA = "select id from articles where author_id = changed.id"
AUTHOR = "update authors set name = name || 'x'"
OWN: dict[str, dict[str, Any]] = {
    "refresh": {},
    "refresh --columns, all changed": {"columns": ("price",)},
    "refresh --columns, none changed": {"columns": ("title",)},
    "refresh --per-row": {"per_row": True},
    "payload": {"payload": True},
}


def prepare(conn: psycopg.Connection[Any]) -> None:
    conn.execute("drop schema if exists cost cascade; create schema cost; set search_path = cost, public")
    conn.execute("create table authors (id int primary key, name text); insert into authors values (1, 'a')")
    conn.execute("create table articles (id bigint primary key, author_id int, title text, price numeric, body text)")
    conn.execute(
        "insert into articles select g, 1, 'title ' || g, g, repeat('x', 200) from generate_series(1, %s) as g", [ROWS]
    )
    conn.execute("create index on articles (author_id); analyze articles")


def seconds(conn: psycopg.Connection[Any], statement: str) -> float:
    conn.execute("truncate search_outbox_events")
    conn.execute("vacuum articles")
    began = time.perf_counter()
    conn.execute(statement.encode())
    return time.perf_counter() - began


def attached(conn: psycopg.Connection[Any], table: str, run: Callable[[], float], **how: Any) -> float:
    attach(conn, table, entity_type="article", **how)
    try:
        return run()
    finally:
        detach(conn, table)


def measure(conn: psycopg.Connection[Any]) -> dict[str, float]:
    """Medians in seconds. `update` is the base of all but `via`, whose base is `insert`."""
    took: dict[str, list[float]] = {}
    for _ in range(TURNS):
        took.setdefault("update", []).append(seconds(conn, UPDATE))
        for name, how in OWN.items():
            run = attached(conn, "articles", lambda: seconds(conn, UPDATE), id_column="id", **how)
            took.setdefault(name, []).append(run)
        took.setdefault("insert", []).append(seconds(conn, INSERT))
        took.setdefault("via", []).append(attached(conn, "authors", lambda: seconds(conn, AUTHOR), via=VIA))
    return {name: statistics.median(each) for name, each in took.items()}


def main() -> None:
    with psycopg.connect(sys.argv[1], autocommit=True) as conn:
        prepare(conn)
        found = measure(conn)
    for name, took in found.items():
        base = found["insert"] if name == "via" else found["update"]
        print(f"{name:35} {took * 1000:7.0f} ms {took / base:6.2f}")


if __name__ == "__main__":
    main()
