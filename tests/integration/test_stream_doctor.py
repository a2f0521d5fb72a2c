"""What `outbox doctor` finds at a real broker: members of the group, the newest records, the retention, Connect."""

import uuid

import psycopg
import pytest

from outbox.config import KafkaSettings
from outbox.kafka.group_progress import KafkaOffsets
from outbox.ports import Finding, Level
from tests.fixtures.desks import Examine
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.sinks import MemorySink
from tests.fixtures.streaming import an_event_record, joined
from tests.fixtures.waiting import eventually
from tests.unit.kafka.test_events import MemoryRecords

PARTITIONS = 2


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
