"""A topic of a benchmark: filled with the rows of an outbox in the form of docs/kafka.md, and read by one group."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.worker import LOG, Daemons
from outbox.config import KafkaSettings
from outbox.kafka.group_progress import KafkaOffsets

REPLY_SECONDS = 30.0
OLDER_SECONDS = 60  # than their rows: so every batch is one of a backlog, and is checked against deletes
ROWS = """
select id::text, entity_type || ':' || entity_id, payload::text,
       json_build_array(op, event_version, entity_type, entity_id, routing,
                        ((extract(epoch from created_at) - {older}) * 1000000)::bigint, true, traceparent)::text
  from search_outbox_events order by seq
"""
Row = tuple[str, str, str, str]


class BenchmarkTopic:
    """One topic of one broker. `group` need not exist yet."""

    def __init__(self, brokers: str, name: str, group: str, partitions: int) -> None:
        self.brokers, self.name, self.group = brokers, name, group
        self._partitions = partitions
        self._offsets = KafkaOffsets(KafkaSettings(bootstrap_servers=brokers, topic=name, group=group))

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
        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        new = NewTopic(self.name, num_partitions=self._partitions)
        admin.create_topics([new])[self.name].result(REPLY_SECONDS)

    def fill(self, url: str, poison_every: int = 0) -> int:
        """The events of this database, in their order; how many. Each `poison_every`th document will be refused."""
        producer = Producer(
            {"bootstrap.servers": self.brokers, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
        )
        refused: list[object] = []
        count = 0
        for count, row in enumerate(_rows(url), 1):
            bad = poison_every and count % poison_every == 0
            value = _spoilt(row[2]) if bad else row[2].encode()
            self._produce(producer, row, value, refused)
        producer.flush(120)
        if refused or len(producer):
            raise RuntimeError(f"{len(refused) or len(producer)} records were not written: {refused[:1]}")
        return count

    def _produce(self, producer: Producer, row: Row, value: bytes, refused: list[object]) -> None:
        id, key, _, event = row
        headers: list[tuple[str, str | bytes | None]] = [("id", id), ("event", event)]

        def delivered(error: object, _: object) -> None:
            if error is not None:
                refused.append(error)

        while True:
            try:
                producer.produce(self.name, value, key.encode(), headers=headers, on_delivery=delivered)
            except BufferError:  # its queue is full
                producer.poll(1)
            else:
                producer.poll(0)
                return

    def ends(self) -> int:
        """Records that were ever written."""
        return sum(place.end for place in self._offsets.read())

    def left(self) -> int:
        """Records that the group has not committed. Asked as the product does: the administrators' client ended the
        whole process while a coordinator was loading (librdkafka 2.16)."""
        return sum(place.lag for place in self._offsets.read())

    def wait_committed(self, events: int, running: Daemons, since: int, limit_seconds: float = 900.0) -> float:
        """Seconds from the first claim after byte `since` of the log until every offset is committed. Asking
        costs the machine something, so it is rare while much is left."""
        began = time.monotonic()
        while (left := self.left()) > 0:
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
        yield from cursor.execute(ROWS.format(older=OLDER_SECONDS).encode())


def _spoilt(payload: str) -> bytes:
    """A document with text where the mapping has a number."""
    return orjson.dumps({**orjson.loads(payload), "n": "no number"})
