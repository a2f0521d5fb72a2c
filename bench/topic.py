"""A topic of a benchmark: filled with the rows of an outbox in the form of docs/kafka.md, and read by one group."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
import psycopg
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from bench.worker import LOG, Daemons

REPLY_SECONDS = 30.0
ROWS = """
select id::text, entity_type, entity_id, op, event_version::text, payload::text,
       to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  from search_outbox_events order by seq
"""
Row = tuple[str, str, str, str, str, str, str]


class BenchmarkTopic:
    """One topic of one broker. `group` need not exist yet."""

    def __init__(self, brokers: str, name: str, group: str, partitions: int) -> None:
        self.brokers, self.name, self.group = brokers, name, group
        self._admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
        self._partitions = range(partitions)

    @property
    def settings(self) -> dict[str, str]:
        """For a daemon that reads it."""
        return {
            "OUTBOX_SOURCE": "kafka",
            "KAFKA_BOOTSTRAP_SERVERS": self.brokers,
            "KAFKA_TOPIC": self.name,
            "KAFKA_GROUP": self.group,
        }

    def create(self) -> None:
        new = NewTopic(self.name, num_partitions=len(self._partitions))
        self._admin.create_topics([new])[self.name].result(REPLY_SECONDS)

    def fill(self, url: str, poison_every: int = 0) -> int:
        """The events of this database, in their order; how many. Each `poison_every`th document will be refused."""
        producer = Producer(
            {"bootstrap.servers": self.brokers, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
        )
        refused: list[object] = []
        count = 0
        for count, row in enumerate(_rows(url), 1):
            bad = poison_every and count % poison_every == 0
            value = _spoilt(row[5]) if bad else row[5].encode()
            self._produce(producer, row, value, refused)
        producer.flush(120)
        if refused or len(producer):
            raise RuntimeError(f"{len(refused) or len(producer)} records were not written: {refused[:1]}")
        return count

    def _produce(self, producer: Producer, row: Row, value: bytes, refused: list[object]) -> None:
        id, entity_type, entity_id, op, version, _, created_at = row
        headers: list[tuple[str, str | bytes | None]] = [
            ("id", id),
            ("entity_type", entity_type),
            ("entity_id", entity_id),
            ("op", op),
            ("event_version", version),
            ("routing", None),
            ("occurred_at", created_at),
            ("has_payload", "true"),
            ("traceparent", None),
        ]

        def delivered(error: object, _: object) -> None:
            if error is not None:
                refused.append(error)

        key = f"{entity_type}:{entity_id}".encode()
        while True:
            try:
                producer.produce(self.name, value, key, headers=headers, on_delivery=delivered)
            except BufferError:  # its queue is full
                producer.poll(1)
            else:
                producer.poll(0)
                return

    def ends(self) -> int:
        """Records that were ever written."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        answers = self._admin.list_offsets({TopicPartition(self.name, n): latest for n in self._partitions})
        return sum(answer.result(REPLY_SECONDS).offset for answer in answers.values())

    def committed(self) -> int:
        """Records below the offsets of the group."""
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])
        try:
            places = asked[self.group].result(REPLY_SECONDS).topic_partitions or []
        except KafkaException:  # its coordinator is not there yet
            return 0
        return sum(place.offset for place in places if place.topic == self.name and place.offset > 0)

    def wait_committed(self, events: int, running: Daemons, since: int, limit_seconds: float = 900.0) -> float:
        """Seconds from the first claim after byte `since` of the log until every offset is committed. Asking
        costs the machine something, so it is rare while much is left."""
        end = self.ends()
        began = time.monotonic()
        while (left := end - self.committed()) > 0:
            running.check_alive()
            past = time.monotonic() - began
            if past > limit_seconds:
                raise TimeoutError(f"{left} of {events} not committed within {limit_seconds:.0f} s; see {LOG}")
            time.sleep(min(0.5, max(0.05, past * left / max(events - left, 1) / 2)))
        return time.time() - first_claim(since)


def first_claim(since: int) -> float:
    """When the first batch was asked for, by the daemon's own log after byte `since`."""
    with LOG.open("rb") as log:
        log.seek(since)
        for line in log:
            if b'"batch.claimed"' in line:
                fact: dict[str, Any] = orjson.loads(line)
                return datetime.fromisoformat(fact["ts"]).timestamp() - float(fact["duration_ms"]) / 1000
    raise RuntimeError(f"nothing was claimed; see {LOG}")


def _rows(url: str) -> Iterator[Row]:
    with psycopg.connect(url) as connection, connection.cursor("rows") as cursor:
        cursor.itersize = 5_000
        yield from cursor.execute(ROWS)


def _spoilt(payload: str) -> bytes:
    """A document with text where the mapping has a number."""
    return orjson.dumps({**orjson.loads(payload), "n": "no number"})
