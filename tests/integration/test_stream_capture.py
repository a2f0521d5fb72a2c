"""What a real connector has not captured yet is waited for and named; it is neither drift nor caught up."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.app.reindex import open_reindexing
from outbox.config import load_settings
from outbox.embedded.connect_api import ConnectApi
from outbox.kafka import capture_wait as capturing
from outbox.kafka.connector import configuration
from outbox.kafka.connector_settings import connector_plan
from outbox.reindex import comparison, mismatches
from outbox.reindex.verify import Verification, VerifyOptions
from outbox.store.schema.migrate import migrate
from tests.fixtures.commands import Called, call
from tests.fixtures.connect import Capture, debezium_source
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.waiting import eventually
from tests.fixtures.world import TABLE

pytestmark = pytest.mark.slow
ACTIVE = "select active from pg_replication_slots where slot_name = %s"


@dataclass
class LoggedShop:
    """Articles whose events go through the log, a connector and a topic; the test is the worker."""

    url: str
    settings: dict[str, str]
    connection: psycopg.Connection[Any]
    kafka: KafkaDesk
    es: Elasticsearch
    api: ConnectApi
    connector: str
    slot: str

    def change(self, title: str) -> None:
        """An article, with its event in the same transaction."""
        put = "insert into articles (id, title, n) values ('1', %s, 1) on conflict (id) do update"
        put += " set title = excluded.title, version = articles.version + 1"
        with self.connection.transaction():
            self.connection.execute(put.encode(), (title,))
            self.connection.execute("select outbox_enqueue('article', '1', 'upsert')")

    def stop(self) -> None:
        self.api.call("PUT", f"/connectors/{self.connector}/stop")
        stopped = lambda: self.connection.execute(ACTIVE, [self.slot]).fetchone() == (False,)  # noqa: E731
        eventually(stopped, what="the end of the connector")

    def resume(self) -> None:
        self.api.call("PUT", f"/connectors/{self.connector}/resume")

    def ends(self) -> dict[int, int]:
        return {number: end for number, end in self.kafka.ends(self.settings["KAFKA_TOPIC"]).items() if end}

    def settle(self, records: int, *, written: bool = True) -> None:
        """As a worker does, when the topic has so many."""
        eventually(lambda: sum(self.ends().values()) >= records, what=f"{records} records")
        title, version = self.connection.execute("select title, version from articles").fetchall()[0]
        if written:
            body = {"title": title, "n": 1}
            index = self.settings["ELASTIC_INDEX"]
            self.es.index(index=index, id="article:1", document=body, version=version, version_type="external")
        self.kafka.commit(self.settings["KAFKA_GROUP"], self.settings["KAFKA_TOPIC"], self.ends())

    def verify(self, **more: str) -> Verification:
        with open_reindexing(load_settings({**self.settings, **more})) as desk:
            return desk.verify.run(VerifyOptions(rate=0))

    def wait(self, seconds: float) -> Called:
        return call("wait", "--caught-up", "--json", "--timeout", f"{seconds:g}", env=dict(self.settings))


@pytest.fixture
def shop(
    logical_database: str,
    connect_url: str,
    capture: Capture,
    kafka: KafkaDesk,
    topic: str,
    es: Elasticsearch,
    elastic_url: str,
    index: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LoggedShop]:
    """With a connector that has captured one change, which is settled."""
    monkeypatch.setattr(mismatches, "WAITS_SECONDS", (0.1,) * 3)
    monkeypatch.setattr(comparison, "STREAM_FIRST_SECONDS", 0.1)
    migrate(logical_database, log=True)
    slot = f"capture_{uuid4().hex[:12]}"
    settings = {
        "DATABASE_URL": logical_database,
        "ELASTIC_URL": elastic_url,
        "ELASTIC_INDEX": index,
        "OUTBOX_SOURCE": "kafka",
        "KAFKA_BOOTSTRAP_SERVERS": kafka.url,
        "KAFKA_TOPIC": topic,
        "KAFKA_GROUP": f"group-{uuid4().hex[:12]}",
        "OUTBOX_EVENT_LOG_SLOT": slot,
    }
    plan = connector_plan(load_settings(settings), topic=topic, prefix=slot)
    with psycopg.connect(logical_database, autocommit=True) as connection:
        connection.execute(TABLE.encode())
        beat = {"heartbeat.interval.ms": "500", "topic.creation.default.replication.factor": "1"}
        name = capture({**configuration(plan), **debezium_source(logical_database), **beat})
        made = LoggedShop(logical_database, settings, connection, kafka, es, ConnectApi(connect_url), name, slot)
        made.change("first")
        made.settle(1)
        yield made
    beats = f"__debezium-heartbeat.{slot}"
    if beats in kafka.admin.list_topics().topics:
        kafka.delete_topic(beats)


def test_what_a_stopped_connector_has_not_captured_is_named_and_no_drift(
    shop: LoggedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shop.verify().report.conclusive
    shop.stop()
    shop.change("second")
    monkeypatch.setattr(capturing, "STOPPED_SECONDS", 1.0)
    found = shop.verify()
    assert (found.report.drift, found.report.unjudged, found.report.conclusive) == (0, 1, False)
    assert f"the connector is stopped (slot {shop.slot} is not in use)" in found.sentence
    waited = shop.wait(2)
    assert (waited.code, "the connector is stopped" in waited.err) == (3, True), waited
    assert (waited.json["caught_up"], waited.json["left"]) == (False, None)
    assert "the connector is stopped" in waited.json["not_captured"]
