"""The event log through a real Kafka Connect: what arrives, what is never missing, and what the check says."""

import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from psycopg import sql

from outbox.config import ConnectSettings
from outbox.embedded.connect_api import ConnectApi
from outbox.kafka.connector import ConnectorPlan, configuration
from outbox.kafka.connector_settings import connector_check, connector_plan
from outbox.kafka.record import Described, read
from outbox.ports import Finding, Level
from outbox.store.schema.migrate import migrate
from tests.fixtures.connect import Capture
from tests.fixtures.desks import settings_for
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

Connection = psycopg.Connection[Any]
Headers = dict[str, str | None]
pytestmark = pytest.mark.slow

AWKWARD = {
    "empty": "{}",
    "unicode": '{"a":"héllo 😀 \u2028 \u00a0"}',
    "escapes": '{"a":"\\u00e9 \\ud83d\\ude00 \\/ \\n","\\u0061":1}',
    "numbers": '{"a":1.10,"b":1e400,"c":12345678901234567890123456789,"d":-0.0,"e":1E+2}',
    "twice": '{"a":1,"a":2,"a":{"a":3}}',
    "white space": ' {\r\n\t"a" :  [ 1 , 2 ] \n} ',
    "null inside": '{"a":null}',
    "large": '{"a":"' + "0123456789abcde\u00e9" * 330_000 + '"}',
}


@pytest.fixture
def secrets(logical_database: str) -> Iterator[str]:
    """The password's file, which the account of Kafka Connect can read."""
    folder = Path(tempfile.mkdtemp(prefix="outbox-connector-"))
    folder.chmod(0o755)
    file = folder / "connector.properties"
    file.write_text(f"password={unquote(urlsplit(logical_database).password or '')}\n")
    file.chmod(0o644)
    yield str(file)
    shutil.rmtree(folder)


@pytest.fixture
def plan(logical_database: str, secrets: str, kafka: KafkaDesk) -> Iterator[ConnectorPlan]:
    unique = urlsplit(logical_database).path.rpartition("_")[2]
    settings = settings_for(logical_database, OUTBOX_EVENT_LOG_SLOT=f"log_{unique}")
    given = {"topic": f"log-{unique}", "secrets": secrets, "partitions": 3, "replication": 1, "prefix": f"p{unique}"}
    made = connector_plan(settings, **given)
    yield made
    for topic in (made.topic, f"__debezium-heartbeat.{made.prefix}"):
        if topic in kafka.admin.list_topics().topics:
            kafka.delete_topic(topic)


@pytest.fixture
def log(logical_database: str) -> Iterator[Connection]:
    migrate(logical_database, log=True)
    with psycopg.connect(logical_database, autocommit=True) as connection:
        yield connection


def arrived(kafka: KafkaDesk, plan: ConnectorPlan, count: int) -> list[Message]:
    """All records of the topic, once there are so many."""

    def enough() -> bool:
        if plan.topic not in kafka.admin.list_topics().topics:
            return False
        try:
            return sum(kafka.ends(plan.topic).values()) >= count
        except KafkaException:  # it was made just now and has no leader yet
            return False

    eventually(enough, every=0.2, what=f"{count} records")
    found = kafka.read(plan.topic)
    assert len(found) == count
    return found


def headers_of(message: Message) -> Headers:
    pairs: Any = message.headers() or []
    assert len(dict(pairs)) == len(pairs), "a header came twice"
    return {name: None if value is None else value.decode() for name, value in pairs}


def described_by(message: Message) -> Described:
    return Described(*json.loads(headers_of(message)["event"] or "")[: len(Described._fields)])


def enqueue(conn: Connection, id: str, op: str = "upsert", payload: str | None = None, **more: Any) -> str:
    named = {"routing": None, "version": None, "traceparent": None, **more}
    row = conn.execute(
        "select outbox_enqueue('article', %(id)s, %(op)s, %(payload)s::json, version => %(version)s::bigint,"
        " routing => %(routing)s, traceparent => %(traceparent)s)",
        {"id": id, "op": op, "payload": payload, **named},
    ).fetchone()
    assert row is not None
    return str(row[0])


def test_events_arrive_byte_for_byte_with_key_and_headers(
    log: Connection, plan: ConnectorPlan, capture: Capture, kafka: KafkaDesk
) -> None:
    capture(configuration(plan))
    wanted: dict[str, tuple[bytes | None, str, Described]] = {}
    began = time.time() - 300

    def send(id: str, op: str, payload: str | None, **more: Any) -> None:
        event = enqueue(log, id, op, payload, **more)
        row = log.execute("select event_version, routing, traceparent from search_outbox_log where id = %s", [event])
        version, routing, traceparent = row.fetchall()[0]
        told = Described(op, version, "article", id, routing, None, payload is not None, traceparent)
        wanted[f"article:{id}"] = (None if payload is None else payload.encode(), event, told)

    for id, payload in AWKWARD.items():
        send(id, "upsert", payload)
    send("from the view", "upsert", None)
    send("gone: é", "delete", None, routing="tenänt", version=2**62)
    send("changed", "refresh", None, traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

    found = {(message.key() or b"").decode(): message for message in arrived(kafka, plan, len(wanted))}
    assert found.keys() == wanted.keys()
    for key, (value, id, told) in wanted.items():
        described = described_by(found[key])
        assert found[key].value() == value, key
        assert headers_of(found[key]).keys() == {"id", "event"}
        assert headers_of(found[key])["id"] == id
        assert described._replace(occurred_at=None) == told, key
        assert described.occurred_at is not None
        assert began < described.occurred_at / 1e6 < time.time() + 300
        message: Any = found[key]
        read_as = read(message, time.time()).event
        assert (str(read_as.id), read_as.entity_id, read_as.payload) == (id, told.entity_id, value)


def stopped(api: ConnectApi, name: str, log: Connection, slot: str) -> None:
    api.call("PUT", f"/connectors/{name}/stop")
    active = "select active from pg_replication_slots where slot_name = %s"
    eventually(lambda: log.execute(active, [slot]).fetchone() == (False,), what="the end of the connector")


@pytest.mark.release("ten seconds of Debezium, with a configuration that other tests run")
def test_after_a_lost_slot_the_days_that_are_kept_are_read_again(
    log: Connection, plan: ConnectorPlan, capture: Capture, kafka: KafkaDesk, connect_url: str
) -> None:
    api, name = ConnectApi(connect_url), capture(configuration(plan))
    first = enqueue(log, "first")
    arrived(kafka, plan, 1)
    stopped(api, name, log, plan.slot)
    log.execute("select pg_drop_replication_slot(%s)", [plan.slot])
    second = enqueue(log, "second", payload='{"written": "without a slot"}')
    api.call("PUT", f"/connectors/{name}/resume")
    ids = [headers_of(message)["id"] for message in arrived(kafka, plan, 3)]
    assert sorted(filter(None, ids)) == sorted([first, first, second])


def check(plan: ConnectorPlan, name: str, url: str) -> list[Finding]:
    return list(connector_check(replace(plan, name=name), url, ConnectSettings()).examine())


@pytest.mark.release("ten seconds each; the limit itself has quick tests in test_log_table.py")
def test_an_event_that_is_too_large_stops_the_connector_until_it_and_the_topic_take_it(
    log: Connection, plan: ConnectorPlan, capture: Capture, kafka: KafkaDesk, connect_url: str
) -> None:
    """The remedy as it is reported, for both limits that refuse."""
    kafka.create_topic(plan.topic, 1, max_message_bytes="1048576")
    api, name = ConnectApi(connect_url), capture(configuration(replace(plan, record_bytes=1 << 20)))
    enqueue(log, "large", payload=json.dumps({"a": "x" * 2_000_000}))
    eventually(lambda: "FAILED" in api.states(name), what="the failure of the task")
    enqueue(log, "small")
    problem = next(finding for finding in check(plan, name, connect_url) if finding.level is Level.BAD)
    assert "--record-bytes" in problem.remedy
    assert "max.message.bytes" in problem.remedy
    api.put_connector(name, configuration(replace(plan, record_bytes=8 << 20)))
    larger = ConfigEntry("max.message.bytes", str(8 << 20), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, plan.topic, incremental_configs=[larger])
    kafka.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)
    api.call("POST", f"/connectors/{name}/restart?includeTasks=true")
    assert [message.key() for message in arrived(kafka, plan, 2)] == [b"article:large", b"article:small"]


@pytest.fixture
def least(log: Connection, plan: ConnectorPlan, secrets: str) -> Iterator[ConnectorPlan]:
    """The same as a role that has the rights of docs/kafka-log.md and no others."""
    role, password = f"connector_{plan.slot}", "p:w d=\u00e9"
    name = sql.Identifier(role)
    page = (Path(__file__).parents[2] / "docs" / "kafka-log.md").read_text("utf-8")
    (given,) = re.findall(r"create role outbox_connector.*?;\n(grant.*?;\ngrant.*?;)", page, re.DOTALL)
    log.execute(sql.SQL("create role {} login replication password {}").format(name, sql.Literal(password)))
    log.execute(given.replace("outbox_connector", role))
    Path(secrets).write_text("password=" + "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in password) + "\n")
    yield replace(plan, user=role)
    log.execute(sql.SQL("drop owned by {}; drop role {}").format(name, name))


def test_the_rights_of_the_page_are_enough(
    log: Connection, least: ConnectorPlan, capture: Capture, kafka: KafkaDesk
) -> None:
    enqueue(log, "before")
    capture({**configuration(least), "heartbeat.interval.ms": "500"})
    arrived(kafka, least, 1)
    enqueue(log, "after")
    arrived(kafka, least, 2)
    end = log.execute("select pg_current_wal_lsn()").fetchone()
    assert end is not None
    passed = "select confirmed_flush_lsn > %s::pg_lsn from pg_replication_slots where slot_name = %s"
    eventually(lambda: log.execute(passed, [end[0], least.slot]).fetchone() == (True,), what="a heartbeat")
