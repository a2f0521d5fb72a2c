"""producer: the cost of the outbox table's indexes and trigger per insert, against the same table without them."""

import time

import psycopg

from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers

BAR = Threshold("insert rate / bare table", 0.60, 0.80)
INSERT = (
    "insert into {table} (entity_type, entity_id, op, payload) "
    'values (\'article\', %s, \'upsert\', \'{{"title": "An article", "body": "some words of a body"}}\')'
)


def run(stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 5, inserts: int = 40_000) -> BenchmarkResult:
    inserts, rounds = (500, 1) if smoke else (inserts, rounds)
    result = BenchmarkResult("producer", smoke)
    result.settings = {"inserts": inserts, "a transaction": "one insert", "synchronous_commit": "off"}
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
    result.judge(BAR, result.series[-1].median)
    return result


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
