"""Joins the Kafka of `outbox up`: its topic, and the connector that brings the event log there."""

import time
from importlib.util import find_spec
from typing import Final

from psycopg.conninfo import conninfo_to_dict

from outbox.config import Settings
from outbox.embedded import EmbeddedStream
from outbox.embedded.errors import EmbeddedServerFailed
from outbox.embedded.process import tail
from outbox.errors import KafkaClientMissing, UsageError
from outbox.kafka.connector import LARGEST_RECORD_BYTES, configuration
from outbox.kafka.connector_settings import connector_plan
from outbox.store.pool import plain_dsn

PARTITIONS: Final = 4
RUNNING_SECONDS: Final = 120.0
BROKERS: Final = "KAFKA_BOOTSTRAP_SERVERS"


def check_kafka(settings: Settings) -> None:
    """Before anything is started. Raises if the projector could not read from Kafka."""
    if find_spec("confluent_kafka") is None:
        raise KafkaClientMissing()
    if settings.source_of(BROKERS) != "default":
        raise UsageError(f"--kafka starts its own Kafka: unset {BROKERS}")


def stream_settings(stream: EmbeddedStream) -> dict[str, str]:
    return {"OUTBOX_SOURCE": "kafka", BROKERS: stream.kafka.url}


def capture_log(settings: Settings, stream: EmbeddedStream) -> None:
    """Create the topic and the connector, and wait until it runs. The event log must be there."""
    kafka, connect = stream
    password = str(conninfo_to_dict(plain_dsn(settings.database.direct_dsn)).get("password") or "")
    secrets = connect.keep_secret("password", password)
    plan = connector_plan(settings, secrets=str(secrets), replication=1)
    kafka.create_topic(plan.topic, PARTITIONS, max_message_bytes=LARGEST_RECORD_BYTES)
    connect.api.put_connector(plan.name, configuration(plan))
    deadline = time.monotonic() + RUNNING_SECONDS
    while (states := connect.api.states(plan.name)) != ["RUNNING", "RUNNING"]:
        if "FAILED" in states or time.monotonic() > deadline:
            raise EmbeddedServerFailed(f"the connector {plan.name} is {states or 'unknown'}\n{tail(connect.log)}")
        time.sleep(0.1)
