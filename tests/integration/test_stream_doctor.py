"""What `outbox doctor` finds at a real broker: members of the group, the newest records, the retention, Connect."""

import base64
import http.server
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outbox.app.doctor import open_doctor
from outbox.config import KafkaSettings, load_settings
from outbox.kafka.group_progress import KafkaOffsets
from outbox.ports import Finding, Level
from tests.fixtures.desks import Examine
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.processes import find_free_port
from tests.fixtures.sinks import MemorySink
from tests.fixtures.streaming import an_event_record, joined
from tests.fixtures.waiting import eventually
from tests.unit.kafka.test_events import MemoryRecords

PARTITIONS = 2
LOGIN = "Basic " + base64.b64encode(b"outbox:canary").decode()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def given(kafka: KafkaDesk, topic: str, group: str) -> dict[str, str]:
    return {
        "OUTBOX_SOURCE": "kafka",
        "KAFKA_BOOTSTRAP_SERVERS": kafka.url,
        "KAFKA_TOPIC": topic,
        "KAFKA_GROUP": group,
        "OUTBOX_CONCURRENCY": "1",
    }


def only(found: dict[str, list[Finding]], name: str) -> Finding:
    (finding,) = found[name]
    return finding


def test_a_member_that_is_no_worker_of_this_database_takes_events_away(
    kafka: KafkaDesk, topic: str, group: str, given: dict[str, str], examine: Examine, connection: psycopg.Connection
) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka.url, topic=topic, group=group)
    kafka.produce(topic, [an_event_record("1", 1)])
    eventually(lambda: "group" in examine(**given))  # a broker that has just started does not know its coordinator
    assert only(examine(**given), "group").detail == "nobody reads the topic as this group"
    with joined(settings, MemoryRecords(), MemorySink()):
        offsets = KafkaOffsets(settings)
        offsets.read()
        eventually(lambda: [each.partitions for each in offsets.readers()] == [(0, 1)])
        stranger = only(examine(**given), "group")
        assert stranger.level is Level.BAD
        assert "outbox-test" in stranger.detail
        assert "partitions 0, 1" in stranger.detail
        connection.execute("insert into search_outbox_workers (worker_id, start_id) values ('test', gen_random_uuid())")
        connection.commit()
        assert only(examine(**given), "group").level is Level.OK


def test_the_newest_records_are_checked(kafka: KafkaDesk, topic: str, given: dict[str, str], examine: Examine) -> None:
    kafka.produce(topic, [an_event_record(str(n), 0) for n in range(20)])
    eventually(lambda: "records" in examine(**given))
    assert only(examine(**given), "records").level is Level.OK
    kafka.produce(
        topic,
        [
            an_event_record("a", 0, partition=0, database="one"),
            an_event_record("a", 0, partition=1, database="two"),
            an_event_record("b", 0, key=b"b"),
        ],
    )
    found = examine(**given)
    assert "the key is not entity_type:entity_id" in only(found, "records").detail
    assert "in several partitions" in only(found, "partitions").detail
    assert [each.detail for each in found["versions"] if "one, two" in each.detail]


class Connect(http.server.BaseHTTPRequestHandler):
    """Answers about one connector, whose task has failed."""

    def do_GET(self) -> None:
        if self.path.startswith("/locked") and self.headers["Authorization"] != LOGIN:
            self.send_response(401)
            self.end_headers()
            return
        self.path = self.path.removeprefix("/locked")
        tasks = [{"id": 0, "state": "FAILED", "trace": "java.lang.RuntimeException: no slot"}]
        body = json.dumps({"connector": {"state": "RUNNING"}, "tasks": tasks}).encode()
        self.send_response(200 if self.path == "/connectors/outbox-log/status" else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """pytest's output is not a web server's log."""


@pytest.fixture
def connect_url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Connect) as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_copies_that_must_confirm_and_rows_that_the_topic_outlives_are_named(
    kafka: KafkaDesk, given: dict[str, str], examine: Examine
) -> None:
    topic = kafka.create_topic(f"test-{uuid.uuid4().hex[:16]}", 2, min_insync_replicas="2", retention_ms="604800000")
    try:
        here = {**given, "KAFKA_TOPIC": topic}
        eventually(lambda: "copies" in examine(**here))
        found = examine(**here, OUTBOX_RETENTION_DAYS="2")
        assert only(found, "copies").detail.startswith("2 copies must confirm a record, and the topic has 1")
        assert "keeps records for 7 d, and finished rows are pruned after 2 d" in only(found, "retention").detail
        assert "retention" not in examine(**here, OUTBOX_RETENTION_DAYS="7")
    finally:
        kafka.delete_topic(topic)


def test_connect_is_asked_where_its_address_is_set(database: str, elastic_url: str) -> None:
    here = {"DATABASE_URL": database, "ELASTIC_URL": elastic_url, "ELASTIC_INDEX": "none"}

    def said(**given: str) -> list[Level]:
        with open_doctor(load_settings(here | given)) as doctor:
            return [each.level for each in doctor.examine() if each.name == "connector"]

    assert said() == []
    assert said(KAFKA_CONNECT_URL=f"http://127.0.0.1:{find_free_port()}") == [Level.UNKNOWN]


def test_connect_that_asks_for_a_login_gets_the_one_of_the_settings(
    database: str, elastic_url: str, connect_url: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("canary\n")
    here = {"DATABASE_URL": database, "ELASTIC_URL": elastic_url, "KAFKA_CONNECT_URL": f"{connect_url}/locked"}
    login = {"KAFKA_CONNECT_USERNAME": "outbox", "KAFKA_CONNECT_PASSWORD_FILE": str(tmp_path / "password")}

    def said(**given: str) -> Finding:
        with open_doctor(load_settings(here | given)) as doctor:
            (found,) = [each for each in doctor.examine() if each.name == "connector"]
            return found

    assert "FAILED" in said(**login).detail
    (tmp_path / "password").write_text("canary-of-yesterday\n")
    for given in ({}, login):
        refused = said(**given)
        assert refused.level is Level.UNKNOWN
        assert "401" in refused.detail
        assert "KAFKA_CONNECT_PASSWORD" in refused.detail
        assert "canary" not in refused.detail + refused.remedy
