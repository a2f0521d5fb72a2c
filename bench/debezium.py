"""The way of an event through Debezium: what PostgreSQL's walsender costs, WAL beyond the insert, and the time from a
commit until the document can be read. Part of `kafka`."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import unquote, urlsplit

import psutil
import psycopg
from elasticsearch import Elasticsearch

from bench.load import document_sql
from bench.result import BenchmarkResult, percentile, progress
from bench.stack import BenchmarkServers, owner_of, tree_cpu
from bench.topic import BenchmarkTopic
from bench.worker import Daemons, daemons
from outbox.app.up_kafka import PARTITIONS, capture_log
from outbox.config.load import load_settings
from outbox.embedded import EmbeddedConnect, EmbeddedKafka, EmbeddedStream
from outbox.kafka.connector import configuration
from outbox.kafka.connector_settings import connector_plan

EVENTS, CHUNK = 50_000, 100  # events of a transaction: a producer writes few at once, a load many
RATE, PACED = 100, 2_000
WARM, MEASURED, LOAD = 30_000, 100_000, 1_000  # events before, events measured, events of a transaction of a load
TYPES = ("article", "author")  # one slot for each, or one for both
PART = """
create publication {slot} for table search_outbox_log where (entity_type = '{kind}')
    with (publish = 'insert', publish_via_partition_root = true)
"""
LOADED = """
insert into search_outbox_log (entity_type, entity_id, op, payload)
select case when g %% 2 = 0 then 'article' else 'author' end, g::text, 'upsert', {document}
  from generate_series(%s::int, %s::int) g
"""
LOOK_SECONDS = 0.005  # between two queries for what was written last
LIMIT_SECONDS = 600.0
LSN = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"
INSERT = """
insert into search_outbox_log (entity_type, entity_id, op, payload)
select 'article', g::text, 'upsert', {document} from generate_series(%s::int, %s::int) g
"""
ONE = "insert into search_outbox_log (entity_type, entity_id, op, payload) values ('paced', %s, 'upsert', %s)"


def measure(
    stack: BenchmarkServers, kafka: EmbeddedKafka, result: BenchmarkResult, *, size: int, smoke: bool = False
) -> None:
    """One round, with a database, a topic and a connector of its own."""
    events, paced = (1_000, 100) if smoke else (EVENTS, PACED)
    with stack.database(log=True) as url, stack.index() as index, _captured(url, kafka) as topic:
        stack.fresh_index(index)
        _capture(url, topic, result, events, size)
        with daemons(url, stack.elastic_url, index, settings=topic.settings) as running:
            _await(lambda: topic.left() == 0, running, "the daemon to catch up")
            progress(f"{paced:,} events at {RATE} per second")
            took = _latencies(stack.client(), url, index, paced)
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        result.add(f"commit to document through Debezium, {name}", "ms", percentile(took, share) * 1000)


def capacity(
    stack: BenchmarkServers, kafka: EmbeddedKafka, result: BenchmarkResult, *, size: int, smoke: bool = False
) -> None:
    """How many events per second Debezium brings to the topic, and what that costs, by one slot and by two."""
    warm, measured = (500, 1_000) if smoke else (WARM, MEASURED)
    for slots in (1, 2):
        with (
            stack.database(log=True) as url,
            EmbeddedConnect.temporary(bootstrap=kafka.url) as connect,
            _slots(url, kafka, connect, slots) as topic,
        ):
            _load(url, topic, 1, warm, size)
            processes = {"Connect": owner_of(connect), "broker": owner_of(kafka), "walsenders": _walsenders(url)}
            before = {name: tree_cpu(owned) for name, owned in processes.items()}
            seconds = _load(url, topic, warm + 1, warm + measured, size)
            told = f"{slots} slot{'s' if slots > 1 else ''}"
            result.add(f"Debezium, {told}", "events/s", measured / seconds)
            for name, owned in processes.items():
                result.add(
                    f"Debezium, {told}: CPU of {name}", "us/event", (tree_cpu(owned) - before[name]) * 1e6 / measured
                )


def _load(url: str, topic: BenchmarkTopic, first: int, last: int, size: int) -> float:
    """Seconds until the topic has all events up to `last`, written as fast as PostgreSQL takes them."""
    began = time.monotonic()
    with psycopg.connect(url, autocommit=True) as connection:
        for at in range(first, last + 1, LOAD):
            connection.execute(LOADED.format(document=document_sql(size)).encode(), [at, min(at + LOAD - 1, last)])
    _await(lambda: topic.ends() >= last, None, "the connectors to read everything")
    return time.monotonic() - began


@contextmanager
def _slots(url: str, kafka: EmbeddedKafka, connect: EmbeddedConnect, slots: int) -> Iterator[BenchmarkTopic]:
    name = f"log_{urlsplit(url).path.strip('/').replace('-', '_')}"
    secrets = connect.keep_secret("password", unquote(urlsplit(url).password or ""))
    kafka.create_topic(name, PARTITIONS)
    named = [f"{name}_{kind}" for kind in TYPES] if slots > 1 else [name]
    try:
        for slot, kind in zip(named, TYPES, strict=False):
            plan = connector_plan(
                load_settings({"DATABASE_URL": url, "OUTBOX_EVENT_LOG_SLOT": slot, "KAFKA_TOPIC": name})
            )
            plan = replace(plan, name=slot, prefix=slot, secrets=str(secrets), replication=1)
            if slots > 1:
                plan = replace(plan, publication=slot)
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute(PART.format(slot=slot, kind=kind).encode())
            connect.api.put_connector(slot, configuration(plan))
            _await(partial(_runs, connect, slot), None, f"the connector {slot}")
        _await(lambda: len(_walsenders(url)) == len(named), None, "the connectors' slots")
        yield BenchmarkTopic(kafka.url, name, name, PARTITIONS)
    finally:
        connect.stop()
        for slot in named:
            _drop(url, slot)


def _runs(connect: EmbeddedConnect, name: str) -> bool:
    return connect.api.states(name) == ["RUNNING", "RUNNING"]


def _walsenders(url: str) -> list[psutil.Process]:
    query = "select active_pid from pg_replication_slots where database = current_database() and active"
    with psycopg.connect(url, autocommit=True) as connection:
        return [psutil.Process(row[0]) for row in connection.execute(query)]


@contextmanager
def _captured(url: str, kafka: EmbeddedKafka) -> Iterator[BenchmarkTopic]:
    """The topic of this database's event log. The slot goes with the connector: a database with one cannot be
    dropped."""
    name = f"log-{urlsplit(url).path.strip('/')}"
    slot = name.replace("-", "_")
    about = {"DATABASE_URL": url, "OUTBOX_EVENT_LOG_SLOT": slot, "KAFKA_TOPIC": name}
    with EmbeddedConnect.temporary(bootstrap=kafka.url) as connect:
        try:
            capture_log(load_settings(about), EmbeddedStream(kafka, connect))
            yield BenchmarkTopic(kafka.url, name, name, PARTITIONS)
        finally:
            connect.stop()
            _drop(url, slot)


def _drop(url: str, slot: str) -> None:
    """PostgreSQL notices the end of its client some time after it."""
    ends = time.monotonic() + 60
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < ends:
            row = connection.execute("select active from pg_replication_slots where slot_name = %s", [slot]).fetchone()
            if row is None:
                return
            if not row[0]:
                connection.execute("select pg_drop_replication_slot(%s)", [slot])
                return
            time.sleep(0.2)


def _capture(url: str, topic: BenchmarkTopic, result: BenchmarkResult, events: int, size: int) -> None:
    """While it is written, as in life: the walsender follows."""
    document = document_sql(size)
    with psycopg.connect(url, autocommit=True) as connection:
        sender = _walsender(connection)
        before, lsn = sum(sender.cpu_times()[:2]), _lsn(connection)
        for first in range(1, events + 1, CHUNK):
            connection.execute(INSERT.format(document=document).encode(), [first, min(first + CHUNK - 1, events)])
        written = _lsn(connection)
        _await(lambda: topic.ends() >= events, None, "the connector to read everything")
        result.add("CPU of the walsender", "us/event", (sum(sender.cpu_times()[:2]) - before) * 1e6 / events)
        result.add("WAL of the insert", "bytes/event", (written - lsn) / events)
        result.add("WAL after the insert", "bytes/event", (_lsn(connection) - written) / events)


def _walsender(connection: psycopg.Connection) -> psutil.Process:
    """Of this database's slot."""
    query = "select active_pid from pg_replication_slots where database = current_database() and active"
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [row[0] for row in connection.execute(query)]
        return bool(found)

    _await(is_there, None, "the connector's slot")
    return psutil.Process(found[0])


def _lsn(connection: psycopg.Connection) -> float:
    row = connection.execute(LSN.encode()).fetchone()
    assert row is not None
    return float(row[0])


def _latencies(client: Elasticsearch, url: str, index: str, events: int) -> list[float]:
    """Seconds from the answer to each commit until the document can be read by its id."""
    committed: dict[str, float] = {}
    producer = threading.Thread(target=_produce, args=(url, events, committed), daemon=True)
    producer.start()
    seen: dict[str, float] = {}
    ends = time.monotonic() + events / RATE + LIMIT_SECONDS
    while len(seen) < events:
        if time.monotonic() > ends:
            raise TimeoutError(f"{events - len(seen)} of {events} documents are missing")
        if waiting := [id for id in list(committed) if id not in seen]:
            at, there = _look(client, index, waiting)
            seen.update(dict.fromkeys(there, at))
        time.sleep(LOOK_SECONDS)
    producer.join()
    return [seen[id] - at for id, at in committed.items()]


def _look(client: Elasticsearch, index: str, ids: Sequence[str]) -> tuple[float, list[str]]:
    reply = client.mget(index=index, ids=[f"paced:{id}" for id in ids[:500]], source=False)
    there = [doc["_id"].removeprefix("paced:") for doc in reply["docs"] if doc.get("found")]
    return time.monotonic(), there


def _produce(url: str, events: int, committed: dict[str, float]) -> None:
    """One transaction per event. The time is taken after the answer: before it, nobody could rely on the commit."""
    body = '{"title": "An article", "body": "some words of a body", "n": 1}'
    with psycopg.connect(url, autocommit=True) as connection:
        began = time.monotonic()
        for number in range(events):
            connection.execute(ONE, [str(number), body])
            committed[str(number)] = time.monotonic()
            time.sleep(max(0.0, began + (number + 1) / RATE - time.monotonic()))


def _await(is_so: Callable[[], bool], running: Daemons | None, what: str) -> None:
    ends = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        if running is not None:
            running.check_alive()
        if time.monotonic() > ends:
            raise TimeoutError(f"waited {LIMIT_SECONDS:.0f} s for {what}")
        time.sleep(0.1)
