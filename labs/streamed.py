"""Owns the servers of the labs about Kafka: a logical PostgreSQL, a broker, Kafka Connect. Injects no faults."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from labs.errors import ServerDied
from outbox.app.up_kafka import PARTITIONS, capture_log, stream_settings
from outbox.config import load_settings
from outbox.embedded import EmbeddedConnect, EmbeddedKafka, EmbeddedPostgres, EmbeddedStream
from outbox.embedded.server import EmbeddedServer
from outbox.store.schema.migrate import migrate

__all__ = ["PARTITIONS", "SESSION_SECONDS", "StreamServers", "stream_servers"]

SESSION_SECONDS = 6.0
# The session of `group.protocol=consumer` is the broker's to say; by default it is 45 s.
BROKER = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": f"{SESSION_SECONDS * 1000:.0f}",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}
# A limit, so that its metric is there; far above what a lab writes.
POSTGRES = {"wal_level": "logical", "max_slot_wal_keep_size": "4GB"}


@dataclass
class StreamServers:
    postgres: EmbeddedPostgres
    kafka: EmbeddedKafka
    connect: EmbeddedConnect
    expected_down: bool = False  # Kafka Connect, which an experiment may stop

    @property
    def database_url(self) -> str:
        return self.postgres.url

    def open(self) -> str:
        """The database with the event log, and a connector that reads it."""
        migrate(self.database_url, log=True)
        self.capture()
        return self.database_url

    def capture(self) -> None:
        """Kafka Connect forgets its connectors when it stops, and keeps where they were."""
        settings = load_settings({"DATABASE_URL": self.database_url})
        capture_log(settings, EmbeddedStream(self.kafka, self.connect))

    def settings(self) -> dict[str, str]:
        stream = stream_settings(EmbeddedStream(self.kafka, self.connect))
        return {**stream, "KAFKA_CONNECT_URL": self.connect.url}

    def stop_connect(self) -> None:
        self.expected_down = True
        self.connect.stop()

    def start_connect(self) -> None:
        if not self.connect.running:
            self.connect.start()
            self.capture()
        self.expected_down = False

    def check(self) -> None:
        running: list[EmbeddedServer] = [self.postgres, self.kafka]
        for server in [*running, *([] if self.expected_down else [self.connect])]:
            if not server.running:
                raise ServerDied(f"{server.title} exited unexpectedly during the lab; see {server.log}")


@contextlib.contextmanager
def stream_servers() -> Iterator[StreamServers]:
    """The start takes some 20 s."""
    with ExitStack() as undo:
        postgres = undo.enter_context(EmbeddedPostgres.temporary(settings=POSTGRES))
        kafka = undo.enter_context(EmbeddedKafka.temporary(settings=BROKER))
        connect = undo.enter_context(EmbeddedConnect.temporary(bootstrap=kafka.url))
        yield StreamServers(postgres, kafka, connect)
