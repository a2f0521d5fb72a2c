"""`outbox run` with Kafka as its source, on real processes and servers: killed, frozen, without PostgreSQL, rewound."""

import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.commands import Outbox
from tests.fixtures.failures import statuses
from tests.fixtures.kafka import KafkaDesk, Sent
from tests.fixtures.metrics import metric, ready
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.streaming import an_event_record, committed_of

PARTITIONS = 4
STRICT: dict[str, Any] = {"dynamic": "strict", "properties": {"v": {"type": "long"}}}


class Ground:
    """One topic and group, one index, one database."""

    def __init__(self, desk: KafkaDesk, topic: str, es: Elasticsearch, index: str, start: StartProcess) -> None:
        self.desk, self.topic, self.es, self.index = desk, topic, es, index
        self.group = f"group-{uuid.uuid4().hex[:12]}"
        self._start = start

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "OUTBOX_SOURCE": "kafka",
            "KAFKA_BOOTSTRAP_SERVERS": self.desk.url,
            "KAFKA_TOPIC": self.topic,
            "KAFKA_GROUP": self.group,
            "KAFKA_SESSION_TIMEOUT_SECONDS": "6",
            **more,
        }

    def start(self, **more: str) -> RunningProcess:
        return self._start(**self.environment(**more))

    def put(self, *records: Sent) -> None:
        self.desk.produce(self.topic, records)

    def committed_all(self) -> bool:
        ends = {number: end for number, end in self.desk.ends(self.topic).items() if end}
        found = committed_of(self.desk, self.group, self.topic) or {}
        return all(found.get(number) == end for number, end in ends.items())

    def finish(self, daemon: RunningProcess) -> None:
        daemon.wait_until(self.committed_all, "every offset is committed")

    def documents(self) -> dict[str, tuple[int, dict[str, Any]]]:
        self.es.indices.refresh(index=self.index)
        hits = self.es.search(index=self.index, size=10_000, version=True)["hits"]["hits"]
        return {hit["_id"].removeprefix("article:"): (hit["_version"], hit["_source"]) for hit in hits}


@pytest.fixture
def ground(kafka: KafkaDesk, topic: str, es: Elasticsearch, index: str, start_daemon: StartProcess) -> Ground:
    return Ground(kafka, topic, es, index, start_daemon)


def test_a_worker_that_is_killed_loses_nothing_and_every_poison_record_is_stored_once(
    ground: Ground, connection: psycopg.Connection, outbox: Outbox
) -> None:
    """Thirty have a field that the mapping refuses; they are replayed when it is there."""
    ground.es.indices.put_mapping(index=ground.index, **STRICT)
    first, second = ground.start(), ground.start()
    first.wait_for_fact("stream.assigned")
    second.wait_for_fact("stream.assigned")
    bad = set(range(0, 1_800, 60))
    extra = b'{"v": 1, "extra": true}'
    odd: dict[str, Any] = {"value": extra}
    records = [an_event_record(str(n), n + 1, **(odd if n in bad else {})) for n in range(2_000)]
    ground.put(*records[:1_000])
    first.wait_for_fact("batch.settled")
    first.kill()
    ground.put(*records[1_000:])
    ground.finish(second)
    assert set(ground.documents()) == {str(n) for n in range(2_000) if n not in bad}
    assert statuses(connection) == {"failed": 30}
    ground.es.indices.put_mapping(index=ground.index, properties={"extra": {"type": "boolean"}})
    said = outbox("replay", "--by", "alice", "--reason", "mapping fixed", "--limit", "100", "--wait", "--yes")
    assert said.code == 0, said.out + said.err
    assert statuses(connection) == {"done": 30}
    assert len(ground.documents()) == 2_000
    assert second.terminate() == 0
    assert outbox("audit", "verify").code == 0


def test_what_waits_shows_everywhere_and_a_stopped_worker_leaves_the_group(ground: Ground, outbox: Outbox) -> None:
    environment = ground.environment()
    ground.put(*(an_event_record(str(n), n + 1) for n in range(50)))
    seen = outbox("status", "--json", cold=True, **environment)
    assert seen.code == 0, seen.err
    found = seen.json
    assert found["stream"]["lag"] == 50
    assert found["sentence"].startswith("No row waits; 50 records to be read from Kafka")
    assert outbox("wait", "--caught-up", "--timeout", "1", **environment).code == 3
    daemon = ground.start()
    waited = outbox("wait", "--caught-up", "--timeout", "100", **environment)
    assert waited.code == 0, waited.err
    assert len(ground.documents()) == 50
    ground.finish(daemon)
    shown = outbox("status", **environment).out
    assert ground.topic in shown
    assert ground.group in shown
    findings = {f["name"]: f for f in outbox("doctor", "--json", **environment).json["findings"]}
    assert findings["kafka"]["verdict"] == "ok", findings
    away = outbox("doctor", "--json", **environment | {"KAFKA_TOPIC": "no-such-topic"}).json["findings"]
    assert [f["verdict"] for f in away if f["name"] == "kafka"] == ["problem"]
    daemon.wait_until(lambda: ready(daemon)[1]["checks"]["kafka"]["ok"], "kafka is fine on /readyz")
    lag: Callable[[], float] = lambda: metric(daemon, "outbox_stream_lag_records")  # noqa: E731
    daemon.wait_until(lambda: metric(daemon, "outbox_stream_partitions") == PARTITIONS and lag() == 0, "no lag")
    assert daemon.terminate() == 0
    other = ground.start()
    other.wait_for_fact("stream.assigned", within=30)
    assert other.terminate() == 0


@pytest.mark.release("test_stream_rows.py has the refusal")
def test_a_second_projection_on_one_database_does_not_start_and_takes_nothing_from_the_first(
    ground: Ground, absent_index: str, connection: psycopg.Connection
) -> None:
    """Both had one queue of exceptions: each index lacked what the other's table lane had taken."""
    ground.es.indices.put_mapping(index=ground.index, **STRICT)
    first = ground.start(OUTBOX_HEARTBEAT_SECONDS="1")
    first.wait_for_fact("stream.assigned")
    other = {"KAFKA_GROUP": f"{ground.group}-2", "ELASTIC_INDEX": absent_index}
    second = ground.start(**other)
    assert second.wait() == 78, second.output
    assert f"writes every entity type to {ground.index}, and this one to {absent_index}" in second.output
    ground.put(an_event_record("bad", 1, value=b'{"extra": 1}'), an_event_record("good", 1))
    ground.finish(first)
    assert statuses(connection) == {"failed": 1}
    assert first.terminate() == 0
    third = ground.start(**other)
    assert third.wait() == 78, third.output
    assert "Two projections need two databases" in third.output
    connection.execute("update search_outbox_events set status = 'discarded' where status = 'failed'")
    ground.start(**other).wait_for_fact("stream.assigned")


@pytest.mark.release("unit/kafka/test_events.py has the limit")
def test_a_mapping_that_refuses_everything_leaves_the_topic_in_kafka(
    ground: Ground, connection: psycopg.Connection, outbox: Outbox
) -> None:
    """The brake lets 50 fail; all others became pending rows, 60,000 in 20 s."""
    ground.es.indices.put_mapping(index=ground.index, dynamic="strict")
    most = {"KAFKA_MAX_OPEN_EVENTS": "50", "OUTBOX_BATCH_SIZE": "50"}
    ground.put(*(an_event_record(str(n), n + 1) for n in range(3_000)))
    daemon = ground.start(**most)
    daemon.wait_for_fact("stream.assigned")
    daemon.wait_until(lambda: metric(daemon, "outbox_stream_resting_partitions") == PARTITIONS, "all partitions rest")
    open_rows = statuses(connection)["pending"]
    assert open_rows <= PARTITIONS * (50 + 50)
    paused = ready(daemon)[1]["checks"]["paused"]
    assert (paused["ok"], "partition 0: " in paused["detail"]) == (False, True)
    seen = outbox("status", "--json", cold=True, **ground.environment(**most))
    assert set(seen.json["stream"]["resting"]) == set(map(str, range(PARTITIONS)))
    assert "partition 3 rests: " in seen.json["sentence"]
    ground.es.indices.put_mapping(index=ground.index, dynamic="true")

    def finished() -> bool:
        connection.execute("update search_outbox_events set next_retry_at = now() where status = 'pending'")
        return ground.committed_all() and statuses(connection).get("pending", 0) == 0

    daemon.wait_until(finished, "the rest is read")
    assert len(ground.documents()) + statuses(connection)["failed"] == 3_000
    daemon.wait_until(lambda: ready(daemon)[1]["checks"]["paused"]["ok"], "nothing rests any more")
    assert daemon.terminate() == 0
