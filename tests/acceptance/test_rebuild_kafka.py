"""A new index while records stream from a real connector through Kafka, with kill -9 of workers and of the rebuild."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from elasticsearch import Elasticsearch

from outbox.config import load_settings
from outbox.kafka.connector import configuration
from outbox.kafka.connector_settings import connector_plan
from outbox.store.schema.migrate import migrate
from tests.fixtures.bustle import Shop, bustling, kill_at, mapping, open_shop
from tests.fixtures.connect import Capture, debezium_source
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.processes import StartProcess

__all__ = ["mapping"]
SIZE = 1_000
RATE = 40.0
PARTITIONS = 4


@pytest.fixture
def shop(
    logical_database: str,
    elastic_url: str,
    absent_index: str,
    es: Elasticsearch,
    kafka: KafkaDesk,
    topic: str,
    capture: Capture,
    start_process: StartProcess,
) -> Iterator[Shop]:
    """Its events go through the log, Debezium and a topic to two workers."""
    migrate(logical_database, log=True)
    name = f"rebuild_{urlsplit(logical_database).path.rpartition('_')[2]}"
    source = {
        "OUTBOX_SOURCE": "kafka",
        "KAFKA_BOOTSTRAP_SERVERS": kafka.url,
        "KAFKA_TOPIC": topic,
        "KAFKA_GROUP": name,
        "KAFKA_SESSION_TIMEOUT_SECONDS": "6",
        "OUTBOX_EVENT_LOG_SLOT": name,
    }
    plan = connector_plan(load_settings({"DATABASE_URL": logical_database, **source}), topic=topic, prefix=name)
    beat = {"heartbeat.interval.ms": "1000", "topic.creation.default.replication.factor": "1"}
    capture({**configuration(plan), **debezium_source(logical_database), **beat})
    yield open_shop(
        logical_database, elastic_url, absent_index, es, start_process, SIZE, table="search_outbox_log", source=source
    )
    beats = f"__debezium-heartbeat.{name}"
    if beats in kafka.admin.list_topics().topics:
        kafka.delete_topic(beats)


def kill_a_worker(shop: Shop) -> None:
    """The older one; another takes its place."""
    shop.daemons.pop(0).kill()
    shop.start_daemon()


def is_right(shop: Shop) -> None:
    """Exactly the articles are there, each as PostgreSQL has it."""
    shop.caught_up()
    articles, documents = shop.counts()
    assert articles == documents
    verified = shop.outbox("verify", "--rate", "0")
    assert verified.code == 0, verified
    assert "No drift" in verified.out
    assert shop.value("select count(*) from search_outbox_events where status <> 'done'") == 0


@pytest.mark.release("rebuilds and Kafka have quick tests of their own")
@pytest.mark.slow
def test_a_rebuild_and_a_worker_are_killed_while_records_stream_and_nothing_differs(shop: Shop, mapping: str) -> None:
    with bustling(shop, RATE) as (changes, reader):
        rebuild = shop.start_rebuild("--mapping", mapping, "--yes", "--rate", "1000")
        kill_at(shop, rebuild, "backfilling")
        kill_a_worker(shop)
        resumed = shop.outbox("rebuild", "--resume", "--yes", "--rate", "0")
        assert resumed.code == 0, resumed
    assert shop.behind() == [f"{shop.alias}-v2"]
    assert changes.made > 0
    assert (reader.errors, reader.least >= SIZE) == ([], True)
    is_right(shop)
