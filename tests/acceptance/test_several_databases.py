"""The recipe of docs/kafka.md: two databases, each with a projection of its own, in one Kafka and one index."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.embedded.connect_api import ConnectApi
from tests.fixtures.commands import Called, call
from tests.fixtures.connect import debezium_source, drop_slot
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.postgres import fresh_database
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.release("two databases with a connector each: a minute")]
CREATE = """
create table {0}s (id text primary key, title text);
create view search_documents as
    select '{0}'::text as entity_type, id as entity_id, json_build_object('title', title) as document from {0}s
"""


@dataclass
class Site:
    """One database with its own entity type and projection, set up by the commands of the page."""

    url: str
    kind: str
    projection: str
    environ: dict[str, str]
    connection: psycopg.Connection[Any]

    def outbox(self, *args: str, **more: str) -> Called:
        return call(*args, env={**self.environ, **more})

    def put(self, id: str, title: str) -> None:
        query = f"insert into {self.kind}s values (%s, %s) on conflict (id) do update set title = excluded.title"
        self.connection.execute(query.encode(), (id, title))

    def delete(self, id: str) -> None:
        self.connection.execute(f"delete from {self.kind}s where id = %s".encode(), (id,))

    def capture(self, api: ConnectApi, undo: ExitStack) -> None:
        printed = self.outbox("kafka", "connector", "--replication", "1").json
        quick = {"heartbeat.interval.ms": "500"}
        name = f"outbox-log-{self.projection}"
        undo.callback(drop_slot, self.url, printed["slot.name"])
        undo.callback(api.delete_connector, name)
        api.put_connector(name, {**printed, **debezium_source(self.url), **quick})
        eventually(lambda: set(api.states(name)) == {"RUNNING"}, what=f"the connector {name}")


@pytest.fixture
def sites(
    logical_postgres_url: str, connect_url: str, kafka: KafkaDesk, es: Elasticsearch, elastic_url: str, index: str
) -> Iterator[list[Site]]:
    unique = uuid.uuid4().hex[:8]
    es.indices.put_alias(index=index, name=f"{index}-alias")
    with ExitStack() as undo:
        made = []
        for kind in ("product", "article"):
            url = undo.enter_context(fresh_database(logical_postgres_url))
            projection = f"{kind}_{unique}"
            environ = {
                "DATABASE_URL": url,
                "ELASTIC_URL": elastic_url,
                "ELASTIC_INDEX": f"{index}-alias",
                "OUTBOX_SOURCE": "kafka",
                "KAFKA_BOOTSTRAP_SERVERS": kafka.url,
                "OUTBOX_PROJECTION": projection,
            }
            connection = undo.enter_context(psycopg.connect(url, autocommit=True))
            connection.execute(CREATE.format(kind).encode())
            site = Site(url, kind, projection, environ, connection)
            assert site.outbox("migrate", "--log").code == 0
            assert site.outbox("attach", f"{kind}s", "--type", kind, "--id", "id").code == 0
            undo.callback(_remove_topics, kafka, projection)
            site.capture(ConnectApi(connect_url), undo)
            made.append(site)
        yield made


def _remove_topics(kafka: KafkaDesk, projection: str) -> None:
    for topic in kafka.admin.list_topics().topics:
        if projection in topic:
            kafka.delete_topic(topic)


def found_in(es: Elasticsearch, index: str) -> dict[str, str]:
    es.indices.refresh(index=index)
    hits = es.search(index=index, size=100)["hits"]["hits"]
    return {hit["_id"]: hit["_source"]["title"] for hit in hits}


def test_two_databases_feed_one_index_and_neither_touches_what_the_other_keeps(
    sites: list[Site], es: Elasticsearch, index: str, start_daemon: StartProcess
) -> None:
    shop, press = sites
    for site in sites:
        site.put("1", "one")
        site.put("2", "two")
    daemons = [start_daemon(**site.environ) for site in sites]
    all_there = {f"{site.kind}:{id}" for site in sites for id in "12"}
    eventually(lambda: found_in(es, index).keys() == all_there, what="the documents of both")
    shop.put("1", "uno")
    press.delete("2")
    expected = {"product:1": "uno", "product:2": "two", "article:1": "one"}
    eventually(lambda: found_in(es, index) == expected, what="the changes of both")
    for site in sites:
        assert site.outbox("wait", "--caught-up", "--timeout", "60").code == 0
        verified = site.outbox("verify", "--type", site.kind, "--json")
        assert (verified.code, verified.json["drift"]) == (0, 0), verified
    rebuilt = shop.outbox("rebuild", "--yes")
    assert (rebuilt.code, "1 documents would be lost (1 article)" in rebuilt.err) == (1, True), rebuilt
    assert shop.outbox("rebuild", "--cancel", "--yes").code == 0
    _reads_the_topic_of_the_other(sites, daemons, es, index, start_daemon)


def _reads_the_topic_of_the_other(
    sites: list[Site], daemons: list[RunningProcess], es: Elasticsearch, index: str, start_daemon: StartProcess
) -> None:
    """By a mistake of configuration: nothing of the other's is looked up, and so nothing deleted."""
    shop, press = sites
    daemons[0].terminate()
    press.put("1", "eins")
    eventually(lambda: found_in(es, index)["article:1"] == "eins", what="the change")
    wrong = start_daemon(**{**shop.environ, "KAFKA_TOPIC": f"{press.projection}.search_outbox_log"})
    failed = "select entity_id, error from search_outbox_events where failed_at is not null order by created_at"
    refused: set[tuple[str, str]] = set()

    def all_refused() -> bool:
        refused.update(shop.connection.execute(failed).fetchall())
        return {"1", "2"} == {id for id, _ in refused}

    wrong.wait_until(all_refused, "the refreshes of the other are refused")
    assert all("a refresh of another database" in error for id, error in refused if id == "1"), refused
    assert found_in(es, index)["article:1"] == "eins"
