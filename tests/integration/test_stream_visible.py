"""A commit that logical decoding delivers before anyone sees it: PostgreSQL while its synchronous standby is down."""

import re
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.config import KafkaSettings
from outbox.embedded import EmbeddedPostgres
from outbox.kafka.records import PostgresRecords
from outbox.store.documents import ViewDocuments
from outbox.store.schema.migrate import migrate
from tests.fixtures.kafka import KafkaDesk, Sent
from tests.fixtures.queue import EventTable, queue_of
from tests.fixtures.servers import POSTGRES_SETTINGS, in_memory
from tests.fixtures.sinks import elastic_sink
from tests.fixtures.streaming import GroupMember, joined
from tests.fixtures.waiting import eventually

PARTITIONS = 1
VIEW = """
create table if not exists articles (id text primary key);
create or replace view search_documents as
    select 'article'::text as entity_type, id as entity_id, json_build_object('v', 1) as document from articles;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Of its own: the standby is missing for all sessions."""
    with EmbeddedPostgres.temporary(in_memory(), settings={**POSTGRES_SETTINGS, "wal_level": "logical"}) as postgres:
        migrate(postgres.url, log=True)
        yield postgres.url


@pytest.fixture
def logged(server: str) -> Iterator[EventTable]:
    with queue_of(server) as queue:
        queue.connection.execute(VIEW.encode())
        queue.connection.execute("select pg_create_logical_replication_slot('early', 'pgoutput')")
        # Only the writer waits for the standby: a draw that is logged would wait too, one of 32.
        queue.connection.execute("alter role current_user set synchronous_commit = local")
        yield queue
        set_standby(queue, "")
        queue.connection.execute("select pg_drop_replication_slot('early')")


def set_standby(queue: EventTable, name: str) -> None:
    queue.connection.execute(f"alter system set synchronous_standby_names = '{name}'".encode())
    queue.connection.execute("select pg_reload_conf()")
    eventually(lambda: queue.value("show synchronous_standby_names") == name, what="the setting")


def decoded(queue: EventTable) -> list[bytes]:
    """Headers `event` of what a connector reads now."""
    query = (
        "select data from pg_logical_slot_peek_binary_changes('early', null, null, 'proto_version', '1',"
        " 'publication_names', 'outbox_log')"
    )
    texts = [bytes(row[0]) for row in queue.connection.execute(query.encode())]
    return [found[0] for text in texts if (found := re.search(rb'\["refresh".*?\]', text))]


class Writer(threading.Thread):
    """Its commit does not come back while the standby is down."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url

    def run(self) -> None:
        with psycopg.connect(self._url, options="-c synchronous_commit=on") as connection:
            connection.execute("insert into articles values ('1')")
            connection.execute("select outbox_refresh('article', '1')")


@pytest.fixture
def member(kafka: KafkaDesk, topic: str, logged: EventTable, elastic_url: str, index: str) -> Iterator[GroupMember]:
    settings = KafkaSettings(bootstrap_servers=kafka.url, topic=topic, group=f"visible-{topic}")
    records = PostgresRecords(logged.pool(), logged.store(), owner="w1", group=settings.group)
    documents = ViewDocuments(logged.pool("view"), "search_documents", batch_bytes=8_000_000)
    with (
        elastic_sink(elastic_url) as sink,
        joined(settings, records, sink, index=index, documents=documents, database=records.check()) as found,
    ):
        yield found


def as_record(event: bytes) -> Sent:
    return Sent(b"article:1", None, {"id": str(uuid.uuid4()), "event": event}, 0)


def test_a_refresh_whose_commit_nobody_sees_yet_waits_for_it(
    member: GroupMember, logged: EventTable, kafka: KafkaDesk, topic: str, es: Elasticsearch, index: str
) -> None:
    set_standby(logged, "nobody")
    writer = Writer(logged.url)
    writer.start()
    (event,) = eventually(lambda: decoded(logged), what="the commit is decoded")
    assert logged.value("select count(*) from articles") == 0, "and nobody sees it"
    kafka.produce(topic, [as_record(event)])
    eventually(lambda: any(p.waiting for p in member.partitions.all()), what="the record is read")
    assert [member.step() for _ in range(20)] == [False] * 20
    assert logged.value("select count(*) from search_outbox_events") == 0
    assert writer.is_alive()
    set_standby(logged, "")
    writer.join(60)
    member.run_until(committed={0: 1}, desk=kafka, group=f"visible-{topic}", topic=topic)
    assert es.exists(index=index, id="article:1").body


def test_transactions_that_are_open_are_unseen_and_others_are_not(logged: EventTable) -> None:
    records = PostgresRecords(logged.pool(), logged.store(), owner="w1", group="g")
    with psycopg.connect(logged.url) as other:
        row: Any = other.execute("select pg_current_xact_id()::text::bigint").fetchone()
        (running,) = row
        over = logged.value("select pg_current_xact_id()::text::bigint")
        assert records.unseen([running, over, 1, 2**50]) == {running}
        other.rollback()
    assert records.unseen([running, over]) == set()
