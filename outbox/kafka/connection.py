"""Turns settings into librdkafka's own, and its errors into ours. Opens nothing by itself."""

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException

from outbox.config import KafkaSettings
from outbox.errors import StreamDown
from outbox.ports import CLIENT_PREFIX

# A request that finds more than this in one partition gets one record at least, whatever its size.
PARTITION_BYTES: Final = 1_048_576
PREFETCH_BYTES: Final = 16_777_216  # read ahead at most; memory is up to three times this
LARGEST_RESPONSE_BYTES: Final = 2_000_000_000  # of the protocol: a response above what we ask for still arrives
QUEUED_RECORDS: Final = 20_000  # read ahead at most, where records are small
SILENT_MS: Final = 600_000  # without a poll: a member that hangs for so long is put out of its group
ASK_SECONDS: Final = 10.0  # for offsets, of a broker that should answer in milliseconds
# Without an answer for so long a connection is dropped, and the client asks who coordinates the group now. Before the
# session ends: a worker keeps its partitions when a broker freezes. librdkafka's own 60 s are more than a session has.
LEAST_ANSWER_SECONDS: Final = 10.0
LONGEST_ANSWER_SECONDS: Final = 60.0
COORDINATOR_MOVES: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
RETRY_SECONDS: Final = 0.2
MEMBER: Final = "group.instance.id"  # a member's: other clients warn of it
# What a client waits out as if the broker were down, although only a person can correct it.
REFUSALS: Final = {
    KafkaError._AUTHENTICATION: "correct KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD or KAFKA_SASL_MECHANISM",
    KafkaError._SSL: "correct KAFKA_CA_CERTS or KAFKA_SECURITY_PROTOCOL",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant this user Read on the topic, and `outbox doctor` DescribeConfigs",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct KAFKA_TOPIC; Connect makes it at its first event",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant this user Read on the group, or Describe where it only shows",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant this user DescribeConfigs on the cluster",
}

OLD_BROKERS: Final = "these brokers lack the group protocol `consumer` (Kafka 4.0): set KAFKA_GROUP_PROTOCOL=classic"

Options = dict[str, Any]
T = TypeVar("T")


def options(settings: KafkaSettings, *, client: str) -> Options:
    """What every client of ours has. Secrets are in it: never log it."""
    found: Options = {
        "bootstrap.servers": settings.bootstrap_servers or "",
        "client.id": f"{CLIENT_PREFIX}{client}",
        "security.protocol": settings.security_protocol,
        "socket.keepalive.enable": True,
        "allow.auto.create.topics": False,
        "log_level": 0,  # errors are raised, or given to `error_cb`; its own lines on stderr have another form
    }
    if settings.is_encrypted and settings.ca_certs is not None:
        found["ssl.ca.location"] = str(settings.ca_certs)
    if settings.has_login:
        found["sasl.mechanism"] = settings.sasl_mechanism
    if settings.has_password:
        found["sasl.username"] = settings.sasl_username
        found["sasl.password"] = settings.sasl_password.get_secret_value() if settings.sasl_password else ""
    return found | {name: value for name, value in settings.more_options.items() if name != MEMBER}


def consumer_options(settings: KafkaSettings, *, client: str) -> Options:
    """Nothing is committed but by us, and no offset is ever chosen for us: one that is gone is an error."""
    found = options(settings, client=client) | {
        "group.id": settings.group,
        "group.protocol": settings.group_protocol,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # behind the last record of a transaction is a marker that nobody reads
        "max.poll.interval.ms": SILENT_MS,
        "socket.timeout.ms": int(answer_seconds(settings) * 1000),
        "queued.max.messages.kbytes": PREFETCH_BYTES // 1024,
        "queued.min.messages": QUEUED_RECORDS,
        "fetch.max.bytes": PREFETCH_BYTES,
        "max.partition.fetch.bytes": PARTITION_BYTES,
        "receive.message.max.bytes": LARGEST_RESPONSE_BYTES,
        "fetch.wait.max.ms": 100,
    }
    if settings.group_protocol == "classic":
        found["partition.assignment.strategy"] = "range"
        found["session.timeout.ms"] = int(settings.session_timeout_seconds * 1000)
        found["heartbeat.interval.ms"] = int(min(3.0, settings.session_timeout_seconds / 3) * 1000)
    return found | settings.more_options


def answer_seconds(settings: KafkaSettings) -> float:
    return min(max(settings.session_timeout_seconds * 2 / 3, LEAST_ANSWER_SECONDS), LONGEST_ANSWER_SECONDS)


def open_consumer(
    settings: KafkaSettings,
    *,
    client: str,
    on_error: Callable[[KafkaError], None],
    on_commit: Callable[[KafkaError | None, list[Any]], None],
) -> Consumer:
    """Does not wait for a broker: the first poll does."""
    given = consumer_options(settings, client=client) | {"error_cb": on_error, "on_commit": on_commit}
    try:
        return Consumer(given)
    except KafkaException as error:
        raise StreamDown(words(error)) from error


def words(error: KafkaException | KafkaError) -> str:
    """librdkafka's own words: they name brokers and topics, never a password. With the remedy, where we know one."""
    said = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(said, KafkaError):
        return str(said)
    # An older broker is met as a fatal error without a code of its own.
    remedy = REFUSALS.get(said.code()) or (OLD_BROKERS if "ConsumerGroupHeartbeat" in said.str() else "")
    return f"{said.name()}: {said.str()}" + (f"; {remedy}" if remedy else "")


def code_of(error: BaseException | None) -> object:
    said = error.args[0] if isinstance(error, KafkaException) else None
    return said.code() if isinstance(said, KafkaError) else None


def coordinated(ask: Callable[[float], T], seconds: float) -> T:
    """Asks again while the group's coordinator starts or moves, each time with what is left of the seconds."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask(max(until - time.monotonic(), RETRY_SECONDS))
        except KafkaException as error:
            if code_of(error) not in COORDINATOR_MOVES or time.monotonic() >= until:
                raise
        time.sleep(RETRY_SECONDS)
