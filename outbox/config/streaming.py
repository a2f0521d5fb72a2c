"""Owns the settings of Kafka as the source of events, and of Kafka Connect; it connects to neither."""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, SecretStr

from outbox.config.declaration import OneLineSecret, Section, ServerAddress, setting

_ONE_HOST = r"[A-Za-z0-9._-]+(:[0-9]{1,5})?"
_PEM = "the path of a readable PEM file"


# ssl and SSL mean the same.
Security = Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(str.upper)]
Mechanism = Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], BeforeValidator(str.upper)]

# What has a setting of its own, and what our promises rest on: who commits, what is read, how partitions are shared.
OURS: Final = frozenset(
    [
        "bootstrap.servers",
        "client.id",
        "security.protocol",
        "ssl.ca.location",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "group.id",
        "group.protocol",
        "session.timeout.ms",
        "partition.assignment.strategy",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "isolation.level",
        "enable.partition.eof",
        "allow.auto.create.topics",
    ]
)


def _client_options(secret: SecretStr) -> SecretStr:
    """The values may be secrets, so no message repeats any."""
    try:
        given = json.loads(secret.get_secret_value())
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(given, dict) or not all(isinstance(value, (str, int, float)) for value in given.values()):
        raise ValueError("must be one JSON object of texts, numbers and booleans")
    if mine := sorted(OURS & given.keys()):
        raise ValueError(f"must not set {', '.join(mine)}: the projector does, by settings of its own")
    return secret


def names_of(projection: str) -> dict[str, str]:
    """The names that follow from `OUTBOX_PROJECTION`, where they are not set themselves."""
    slug = slug_of(projection)
    return {
        "KAFKA_TOPIC": f"{slug}.search_outbox_log",
        "KAFKA_GROUP": f"outbox-projector-{slug}",
        "OUTBOX_EVENT_LOG_SLOT": f"outbox_log_{slug}",
    }


def slug_of(projection: str) -> str:
    """As the name of a slot may be, which allows least."""
    return re.sub("[^a-z0-9_]", "_", projection.lower())[:52]


ClientOptions = Annotated[SecretStr, AfterValidator(_client_options)]


class KafkaSettings(Section):
    """Kafka: its address, the topic, the consumer group, the login."""

    bootstrap_servers: str | None = setting(
        "KAFKA_BOOTSTRAP_SERVERS",
        pattern=rf"^{_ONE_HOST}( *, *{_ONE_HOST})*$",
        accepts="`host:9092`, or a list of them separated by commas",
    )
    """Brokers to ask first; needed with `OUTBOX_SOURCE=kafka`. Name two or more, so that a start does not depend on one
    of them."""
    topic: str = setting(
        "KAFKA_TOPIC",
        "outbox.search_outbox_log",
        min_length=1,
        max_length=249,
        pattern=r"^[A-Za-z0-9._-]+$",
        accepts="a topic's name: letters, digits, `.`, `_` and `-`",
    )
    """The topic that holds the events. Its key must be the entity (docs/kafka.md): one entity is in one partition."""
    group: str = setting(
        "KAFKA_GROUP",
        "outbox-projector",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        accepts="1 to 200 ASCII characters without blanks",
    )
    """The consumer group; all workers of one projection share it. Another index needs another group, and a database
    of its own for its exceptions. Two projections in one group would each get a part of the events."""
    record_form: Literal["event", "router"] = setting("KAFKA_RECORD_FORM", "event")
    """How a record describes an event. `router`: as Debezium's outbox router writes it by default. That has no version,
    so each record is a refresh of its `aggregateid` in the view (docs/kafka.md)."""
    group_protocol: Literal["consumer", "classic"] = setting("KAFKA_GROUP_PROTOCOL", "consumer")
    """How the group shares partitions. `consumer` needs Kafka 4.0 or later; others keep their partitions while one is
    moved. `classic` works with older brokers, with the range assignor: every change stops all workers for a moment."""
    session_timeout_seconds: float = setting("KAFKA_SESSION_TIMEOUT_SECONDS", 45.0, ge=6.0, le=1800.0)
    """How long a silent worker keeps its partitions, with `KAFKA_GROUP_PROTOCOL=classic`. Shorter: a dead worker is
    replaced sooner, and a busy one loses its partitions sooner. With `consumer` the brokers decide
    (`group.consumer.session.timeout.ms`, 45 s by default): set it here too."""
    max_open_events: int = setting("KAFKA_MAX_OPEN_EVENTS", 1_000, ge=1, le=1_000_000)
    """Most events of one partition that wait as rows in PostgreSQL, for a retry or behind the brake. With more, the
    partition rests: the topic keeps what follows. Failed events do not count."""
    security_protocol: Security = setting(
        "KAFKA_SECURITY_PROTOCOL", "PLAINTEXT", accepts="`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`"
    )
    """Encryption and login. `PLAINTEXT` and `SASL_PLAINTEXT` are for a network that nobody else can read."""
    sasl_mechanism: Mechanism = setting(
        "KAFKA_SASL_MECHANISM", "SCRAM-SHA-512", accepts="`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`"
    )
    """How the login is proved, with `SASL_SSL` or `SASL_PLAINTEXT`: by the password, or with `OAUTHBEARER` by a token
    that `KAFKA_CLIENT_OPTIONS` says how to get."""
    sasl_username: str | None = setting("KAFKA_SASL_USERNAME")
    """User name of the login. Together with `KAFKA_SASL_PASSWORD`."""
    sasl_password: OneLineSecret | None = setting(
        "KAFKA_SASL_PASSWORD", accepts="the password on one line", secret=True
    )
    """Password of the login."""
    ca_certs: Path | None = setting("KAFKA_CA_CERTS", None, "the system's", accepts=_PEM)
    """File of certificate authorities that sign the brokers' certificates."""
    client_options: ClientOptions | None = setting(
        "KAFKA_CLIENT_OPTIONS", accepts='JSON of options of librdkafka: `{"client.rack": "eu-1a"}`', secret=True
    )
    """More options of the client, passed on as they are: `client.rack`, `sasl.oauthbearer.method`, a certificate of its
    own (`ssl.certificate.location`, `ssl.key.location`) and the like. Those that have a setting, or that the projector
    depends on, are refused."""

    @property
    def more_options(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.client_options.get_secret_value()) if self.client_options else {}
        return found

    @property
    def secret_options(self) -> tuple[str, ...]:
        """Values of them that must never be shown by themselves."""
        marks = ("secret", "password", "token", "key", "jaas", "oauthbearer.config")
        return tuple(str(value) for name, value in self.more_options.items() if any(mark in name for mark in marks))

    @property
    def has_password(self) -> bool:
        return self.has_login and self.sasl_mechanism != "OAUTHBEARER"

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def has_login(self) -> bool:
        return self.security_protocol.startswith("SASL_")


class ConnectSettings(Section):
    """Kafka Connect: where `outbox doctor` and `outbox kafka connector --check` ask about the connector."""

    url: ServerAddress | None = setting(
        "KAFKA_CONNECT_URL", accepts="`http://host:8083` or `https://host:8083`, without credentials"
    )
    """Address of its REST interface; `outbox doctor` then checks the connector too. The projector never asks it."""
    username: str | None = setting("KAFKA_CONNECT_USERNAME")
    """User name, where it asks for a login (HTTP basic). Together with `KAFKA_CONNECT_PASSWORD`."""
    password: OneLineSecret | None = setting("KAFKA_CONNECT_PASSWORD", accepts="the password on one line", secret=True)
    """Password of the login. It is sent to the address above, and to one given with `--check`: use https."""
    ca_certs: Path | None = setting("KAFKA_CONNECT_CA_CERTS", None, "the system's", accepts=_PEM)
    """File of certificate authorities that sign its certificate."""
