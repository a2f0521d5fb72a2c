"""Owns the servers of a nemesis with Kafka as the source: three brokers, Connect with its connector, beside the two of
every nemesis. It harms nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, LiteralString

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic
from psycopg.conninfo import conninfo_to_dict
from urllib3.exceptions import HTTPError

from outbox.config.load import load_settings
from outbox.embedded import EmbeddedConnect
from outbox.embedded.errors import ConnectorRefused, EmbeddedServerFailed
from outbox.embedded.pins import KAFKA_VERSION
from outbox.embedded.process import tail
from outbox.errors import StreamDown
from outbox.kafka.connector import configuration
from outbox.kafka.connector_settings import connector_plan
from outbox.kafka.group_progress import KafkaOffsets
from tests.fixtures.kafka_cluster import EmbeddedKafkaCluster
from tests.nemesis.ground import PATIENCE_SECONDS, Ground

TOPIC, GROUP, SLOT = "outbox.search_outbox_log", "nemesis", "nemesis_log"
PARTITIONS = 8  # two per worker
SESSION_SECONDS = 6.0
REPLY_SECONDS = 10.0
# The session is a broker's to say. A dead broker is noticed after 4 s instead of 9: a minute holds some of them.
BROKER = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": f"{SESSION_SECONDS * 1000:.0f}",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}
KAFKA_DOWN = (KafkaException, TimeoutError, StreamDown)
# A connector is refused while PostgreSQL is down: it checks the address.
CONNECT_DOWN = (HTTPError, ValueError, ConnectorRefused)
POSITION: LiteralString = "select pg_current_wal_insert_lsn()::text"
IS_PAST: LiteralString = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s"


class KafkaGround(Ground):
    """Producers write to the event log; a connector brings it to a topic that three brokers keep."""

    POSTGRES: ClassVar[Mapping[str, str]] = {"wal_level": "logical"}
    WITH_LOG = True

    def _add_servers(self, undo: contextlib.ExitStack, folder: Path) -> None:
        self.kafka = EmbeddedKafkaCluster(folder, settings=BROKER)
        for broker in self.kafka.brokers:
            broker.ready_seconds = PATIENCE_SECONDS
        undo.callback(self.kafka.stop)
        self.kafka.start()
        new = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)
        admin = self._admin()
        admin.create_topics([new])[TOPIC].result(60)
        where = {"KAFKA_BOOTSTRAP_SERVERS": self.kafka.url, "KAFKA_TOPIC": TOPIC, "KAFKA_GROUP": GROUP}
        self._offsets = KafkaOffsets(load_settings({"DATABASE_URL": self.database_url, **where}).kafka)
        self.connect_server = EmbeddedConnect(folder / "connect", bootstrap=self.kafka.url)
        self.connect_server.ready_seconds = PATIENCE_SECONDS
        undo.callback(self.connect_server.stop)
        self.start_connect()

    def road(self) -> dict[str, str]:
        return {
            **super().road(),
            "OUTBOX_SOURCE": "kafka",
            "OUTBOX_RETENTION_DAYS": "0",  # rows of deletes stay for as long as the topic keeps records
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka.url,
            "KAFKA_TOPIC": TOPIC,
            "KAFKA_GROUP": GROUP,
            "KAFKA_SESSION_TIMEOUT_SECONDS": f"{SESSION_SECONDS:g}",
            "OUTBOX_EVENT_LOG_SLOT": SLOT,
        }

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "kafka": KAFKA_VERSION}

    # Connect

    def start_connect(self, within: float = 180.0) -> None:
        """It forgets its connectors when it ends, and keeps their positions."""
        connect = self.connect_server
        connect.start()
        password = str(conninfo_to_dict(self.database_url).get("password") or "")
        settings = load_settings({"DATABASE_URL": self.database_url, "OUTBOX_EVENT_LOG_SLOT": SLOT})
        secrets = str(connect.keep_secret("password", password))
        self.connector = connector_plan(settings, topic=TOPIC, secrets=secrets)
        deadline = time.monotonic() + within
        put = False
        while connect.running:
            with contextlib.suppress(*CONNECT_DOWN):
                if not put:
                    connect.api.put_connector(self.connector.name, configuration(self.connector))
                    put = True
                if connect.api.states(self.connector.name) == ["RUNNING", "RUNNING"]:
                    return
                self.restart_connector()
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        raise EmbeddedServerFailed(f"the connector does not run\n{tail(connect.log)}")

    def restart_connector(self) -> bool:
        """Start a task again that has failed, as whoever runs a Connect does it. Whether one had."""
        connect = self.connect_server
        with contextlib.suppress(*CONNECT_DOWN):
            if connect.running and "FAILED" in connect.api.states(self.connector.name):
                connect.api.call("POST", f"/connectors/{self.connector.name}/restart?includeTasks=true&onlyFailed=true")
                return True
        return False

    # Reading. Each raises one of KAFKA_DOWN while no broker answers for it.

    def _admin(self, without: int | None = None) -> AdminClient:
        """A new one: one that knows an earlier leader is refused with FENCED_LEADER_EPOCH, again and again."""
        known = [broker.url for broker in self.kafka.brokers if broker.node != without]
        return AdminClient({"bootstrap.servers": ",".join(known), "log_level": 0})

    def leaders(self, without: int | None = None) -> dict[int, int]:
        """The broker that leads each partition; -1: none. `without`: not asked of this one, which may be asleep; a
        client that knows it would wait for its answer."""
        partitions = self._admin(without).list_topics(TOPIC, REPLY_SECONDS).topics[TOPIC].partitions
        return {number: found.leader for number, found in partitions.items()}

    def ends(self) -> dict[int, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        admin = self._admin()  # kept: what it was asked ends with it
        answers = admin.list_offsets({TopicPartition(TOPIC, n): latest for n in range(PARTITIONS)})
        return {place.partition: answer.result(REPLY_SECONDS).offset for place, answer in answers.items()}

    def lag(self) -> int:
        """Records that are written and not committed."""
        return sum(place.lag for place in self._offsets.read())

    def written(self) -> int:
        return int(self.value("select count(*) from search_outbox_log"))

    def position(self) -> str:
        return str(self.value(POSITION))

    def is_captured(self, position: str) -> bool:
        """Whether all that was committed before is in the topic: the connector confirms what the brokers have."""
        return bool(self.value(IS_PAST, [position, SLOT]))

    def strays(self, answered: set[str]) -> list[dict[str, Any]]:
        """Events of the log whose commit had no answer, or that nobody wrote."""
        return [{"id": str(id)} for (id,) in self.rows("select id from search_outbox_log") if str(id) not in answered]
