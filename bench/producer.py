"""producer: the cost of the outbox table's indexes and trigger per insert, against the same table without them; and
of `outbox attach` for a large UPDATE."""

import time

import psycopg

from bench.fanout import ARTICLES, MANY, TABLES
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers
from outbox.store.attach.attach import attach, detach

BAR = Threshold("insert rate / bare table", 0.60, 0.80)
ATTACHED = Threshold("UPDATE of attached rows / without", 3.0, 2.0, most=True)
UPDATE = "update articles set n = n + 1"
# The row trigger of `outbox attach` before there were refreshes: one event per row.
ROW_TRIGGER = """
create function each_row() returns trigger language plpgsql as $$
begin
    insert into search_outbox_events (entity_type, entity_id, op, event_version)
    values ('article', new.id::text, 'upsert', nextval('search_outbox_version'));
    return null;
end $$;
create trigger each_row after update on articles for each row execute function each_row();
"""
INSERT = (
    "insert into {table} (entity_type, entity_id, op, payload) "
    'values (\'article\', %s, \'upsert\', \'{{"title": "An article", "body": "some words of a body"}}\')'
)


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 5, inserts: int = 40_000, updated: int = 100_000
) -> BenchmarkResult:
    """`--set`: inserts, updated (rows of the UPDATE)."""
    inserts, updated, rounds = (500, 500, 1) if smoke else (inserts, updated, rounds)
    result = BenchmarkResult("producer", smoke)
    result.settings = {"inserts": inserts, "a transaction": "one insert", "synchronous_commit": "off"}
    result.settings["rows updated"] = updated
    with stack.database() as url, psycopg.connect(url, autocommit=True) as connection:
        make_bare(connection)
        connection.execute("set synchronous_commit = off")  # else only the disk's fsync is measured
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            bare = inserts / _insert(connection, "bare", inserts)
            ours = inserts / _insert(connection, "search_outbox_events", inserts)
            result.add("bare table", "inserts/s", bare)
            result.add("outbox table", "inserts/s", ours)
            result.add("ratio", "", ours / bare)
        connection.execute(TABLES)
        connection.execute(ARTICLES.encode(), [MANY, updated])
        connection.execute("vacuum analyze articles")
        for number in range(rounds):
            progress(f"an UPDATE of {updated:,} rows, {number + 1} of {rounds}")
            _update(connection, result)
    result.judge(BAR, "ratio")
    result.judge(ATTACHED, "attached UPDATE / plain")
    return result


def _update(connection: psycopg.Connection, result: BenchmarkResult) -> None:
    plain = seconds_of(connection, UPDATE)
    attach(connection, "articles", entity_type="article", id_column="id")
    attached = seconds_of(connection, UPDATE)
    detach(connection, "articles")
    connection.execute(ROW_TRIGGER)
    by_row = seconds_of(connection, UPDATE)
    connection.execute("drop function each_row cascade")
    result.add("UPDATE of all rows", "ms", plain * 1000)
    result.add("the same, attached", "ms", attached * 1000)
    result.add("attached UPDATE / plain", "", attached / plain)
    result.add("by a row trigger, as before / plain", "", by_row / plain)


def seconds_of(connection: psycopg.Connection, statement: str) -> float:
    connection.execute("truncate search_outbox_events")
    connection.execute("vacuum articles")
    connection.execute("checkpoint")
    began = time.perf_counter()
    connection.execute(statement.encode())
    return time.perf_counter() - began


def make_bare(connection: psycopg.Connection) -> None:
    """The same table without indexes and trigger; its check and its fillfactor stay."""
    connection.execute("create table bare (like search_outbox_events including all excluding indexes)")
    found = connection.execute(
        "select reloptions from pg_class where oid = 'search_outbox_events'::regclass"
    ).fetchone()
    assert found
    connection.execute(f"alter table bare set ({', '.join(found[0])})".encode())


def _insert(connection: psycopg.Connection, table: str, inserts: int) -> float:
    connection.execute(f"truncate {table}")
    sql = INSERT.format(table=table)
    started = time.monotonic()
    with connection.cursor() as cursor:
        for number in range(inserts):
            cursor.execute(sql, [str(number)], prepare=True)
    return time.monotonic() - started
