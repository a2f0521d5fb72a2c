"""Owns the settings of Kafka as the source of events, and of Kafka Connect; it connects to neither."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from outbox.config.declaration import OneLineSecret, Section, ServerAddress, setting

_ONE_HOST = r"[A-Za-z0-9._-]+(:[0-9]{1,5})?"
_PEM = "the path of a readable PEM file"


def _upper_case(value: object) -> object:
    """ssl and SSL mean the same."""
    return value.upper() if isinstance(value, str) else value


Security = Annotated[
    Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
    BeforeValidator(_upper_case),
]
Mechanism = Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], BeforeValidator(_upper_case)]


class KafkaSettings(Section):
    """Kafka: its address, the topic, the consumer group, the login."""

    bootstrap_servers: str | None = setting(
        "KAFKA_BOOTSTRAP_SERVERS",
        pattern=rf"^{_ONE_HOST}( *, *{_ONE_HOST})*$",
        meaning="Brokers to ask first; needed with `OUTBOX_SOURCE=kafka`.",
        tradeoff="Name two or more, so that a start does not depend on one of them.",
        accepts="`host:9092`, or a list of them separated by commas",
    )
    topic: str = setting(
        "KAFKA_TOPIC",
        "outbox.search_outbox_log",
        min_length=1,
        max_length=249,
        pattern=r"^[A-Za-z0-9._-]+$",
        meaning="The topic that holds the events.",
        tradeoff="Its key must be the entity (docs/kafka.md): one entity is in one partition.",
        accepts="a topic's name: letters, digits, `.`, `_` and `-`",
    )
    group: str = setting(
        "KAFKA_GROUP",
        "outbox-projector",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        meaning="The consumer group; all workers of one projection share it.",
        tradeoff="Another index needs another group. Two projections in one group would each get a part of the events.",
        accepts="1 to 200 ASCII characters without blanks",
    )
    group_protocol: Literal["consumer", "classic"] = setting(
        "KAFKA_GROUP_PROTOCOL",
        "consumer",
        meaning="How the group shares partitions.",
        tradeoff="`consumer` needs Kafka 4.0 or later; others keep their partitions while one is moved. `classic` works"
        " with older brokers, with the range assignor: every change stops all workers for a moment.",
    )
    session_timeout_seconds: float = setting(
        "KAFKA_SESSION_TIMEOUT_SECONDS",
        45.0,
        ge=6.0,
        le=1800.0,
        meaning="How long a silent worker keeps its partitions, with `KAFKA_GROUP_PROTOCOL=classic`.",
        tradeoff="Shorter: a dead worker is replaced sooner, and a busy one loses its partitions sooner. With"
        " `consumer` the brokers decide (`group.consumer.session.timeout.ms`, 45 s by default): set it here too.",
    )
    prefetch_bytes: int = setting(
        "KAFKA_PREFETCH_BYTES",
        16_777_216,
        ge=65_536,
        le=1_073_741_824,
        meaning="Most bytes of records that are read ahead.",
        tradeoff="Memory: up to three times this. Larger helps only where one request takes longer than to read it.",
    )
    security_protocol: Security = setting(
        "KAFKA_SECURITY_PROTOCOL",
        "PLAINTEXT",
        meaning="Encryption and login.",
        tradeoff="`PLAINTEXT` and `SASL_PLAINTEXT` are for a network that nobody else can read.",
        accepts="`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`",
    )
    sasl_mechanism: Mechanism = setting(
        "KAFKA_SASL_MECHANISM",
        "SCRAM-SHA-512",
        meaning="How the password is proved, with `SASL_SSL` or `SASL_PLAINTEXT`.",
        accepts="`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`",
    )
    sasl_username: str | None = setting(
        "KAFKA_SASL_USERNAME",
        meaning="User name of the login.",
        tradeoff="Together with `KAFKA_SASL_PASSWORD`.",
    )
    sasl_password: OneLineSecret | None = setting(
        "KAFKA_SASL_PASSWORD",
        meaning="Password of the login.",
        accepts="the password on one line",
        secret=True,
    )
    ca_certs: Path | None = setting(
        "KAFKA_CA_CERTS",
        default_text="the system's",
        meaning="File of certificate authorities that sign the brokers' certificates.",
        accepts=_PEM,
    )
    client_cert: Path | None = setting(
        "KAFKA_CLIENT_CERT",
        meaning="This client's own certificate, where the brokers ask for one.",
        tradeoff="Together with `KAFKA_CLIENT_KEY`.",
        accepts=_PEM,
    )
    client_key: Path | None = setting(
        "KAFKA_CLIENT_KEY",
        meaning="The private key of `KAFKA_CLIENT_CERT`, without a passphrase.",
        accepts=_PEM,
    )
    sasl_password_file: Path | None = None

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def has_login(self) -> bool:
        return self.security_protocol.startswith("SASL_")


class ConnectSettings(Section):
    """Kafka Connect: where `outbox doctor` and `outbox kafka connector --check` ask about the connector."""

    url: ServerAddress | None = setting(
        "KAFKA_CONNECT_URL",
        meaning="Address of its REST interface; `outbox doctor` then checks the connector too.",
        tradeoff="`outbox doctor --connect URL` counts more. The projector itself never asks it.",
        accepts="`http://host:8083` or `https://host:8083`, without credentials",
    )
    username: str | None = setting(
        "KAFKA_CONNECT_USERNAME",
        meaning="User name, where it asks for a login (HTTP basic).",
        tradeoff="Together with `KAFKA_CONNECT_PASSWORD`.",
    )
    password: OneLineSecret | None = setting(
        "KAFKA_CONNECT_PASSWORD",
        meaning="Password of the login.",
        tradeoff="It is sent to the address above, and to one given with `--connect` or `--check`: use https.",
        accepts="the password on one line",
        secret=True,
    )
    ca_certs: Path | None = setting(
        "KAFKA_CONNECT_CA_CERTS",
        default_text="the system's",
        meaning="File of certificate authorities that sign its certificate.",
        accepts=_PEM,
    )
    password_file: Path | None = None
