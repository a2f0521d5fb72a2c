"""Records of Debezium's outbox router in its usual form: each is a refresh of its aggregate in the view."""

import uuid
from urllib.parse import urlsplit

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.config import KafkaSettings
from outbox.kafka.group_progress import KafkaOffsets
from outbox.kafka.records import PostgresRecords
from outbox.store.documents import ViewDocuments
from tests.fixtures.connect import Capture
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.queue import queue_of
from tests.fixtures.sinks import elastic_sink
from tests.fixtures.streaming import GroupMember, committed_of
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.release("it starts Kafka Connect")]
TABLES = """
create table outbox (id uuid primary key, aggregatetype text, aggregateid text, type text, payload jsonb);
create publication theirs for table outbox with (publish = 'insert');
create table articles (id text primary key, title text);
create view search_documents as
    select 'article'::text as entity_type, id as entity_id, json_build_object('title', title) as document from articles
"""
ROUTER = {
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "publication.name": "theirs",
    "publication.autocreate.mode": "disabled",
    "table.include.list": "public.outbox",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "topic.creation.enable": "true",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "1",
}


def write(connection: psycopg.Connection, id: str, title: str | None) -> None:
    """As their producer does: the change and its event in one transaction."""
    with connection.transaction():
        connection.execute("delete from articles where id = %s", (id,))
        if title is not None:
            connection.execute("insert into articles values (%s, %s)", (id, title))
        row = (uuid.uuid4(), "article", id, "ArticleChanged", '{"what": "they publish"}')
        connection.execute("insert into outbox values (%s, %s, %s, %s, %s)", row)


def test_what_the_router_writes_by_default_refreshes_documents_of_the_view(
    logical_database: str, capture: Capture, kafka: KafkaDesk, es: Elasticsearch, elastic_url: str, index: str
) -> None:
    prefix = f"r{urlsplit(logical_database).path.rpartition('_')[2]}"
    topic = f"{prefix}.article"
    kafka.create_topic(topic, 1)
    with psycopg.connect(logical_database, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        replacement = {"transforms.outbox.route.topic.replacement": f"{prefix}.${{routedByValue}}"}
        capture({**ROUTER, **replacement, "topic.prefix": prefix})
        for id, title in (("1", "one"), ("2", "two"), ("1", "uno"), ("2", None)):
            write(connection, id, title)
        eventually(lambda: kafka.ends(topic) == {0: 4}, what="four records")
        settings = KafkaSettings(bootstrap_servers=kafka.url, topic=topic, group=topic, record_form="router")
        with queue_of(logical_database) as queue, elastic_sink(elastic_url) as sink:
            records = PostgresRecords(queue.pool(), queue.store(), owner="w1", group=settings.group)
            documents = ViewDocuments(queue.pool("view"), "search_documents", batch_bytes=8_000_000)
            member = GroupMember(settings, records, sink, index=index, documents=documents)
            member.start()
            try:
                member.run_until(committed={0: 4}, desk=kafka, group=topic, topic=topic)
            finally:
                member.stop()
        assert committed_of(kafka, topic, topic) == {0: 4}
        assert es.get(index=index, id="article:1")["_source"] == {"title": "uno"}
        assert not es.exists(index=index, id="article:2").body
        assert connection.execute(
            "select count(*) from search_outbox_events where failed_at is not null"
        ).fetchone() == (0,)
    assert [(each.entity_type, each.not_event) for each in KafkaOffsets(settings).newest(10)] == [("article", "")] * 4
    kafka.delete_topic(topic)
