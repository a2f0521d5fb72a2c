"""Joins the settings with the connector's plan, and its check with Kafka Connect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from psycopg.conninfo import conninfo_to_dict

from outbox.config import ConnectSettings, Settings
from outbox.config.streaming import slug_of
from outbox.kafka.connect_rest import KafkaConnect
from outbox.kafka.connector import HEADERS_BYTES, ConnectorPlan
from outbox.kafka.connector_check import ConnectorCheck
from outbox.store.pool import plain_dsn

_TLS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_PORT: Final = 5432


def connector_plan(settings: Settings, **given: Any) -> ConnectorPlan:
    """From the database's own address; what was given counts more. A password is never read."""
    about = conninfo_to_dict(plain_dsn(settings.database.direct_dsn))
    host = str(about.get("host") or "localhost").split(",")[0]
    plan = ConnectorPlan(
        host="localhost" if host.startswith("/") else host,
        port=int(str(about.get("port") or _PORT).split(",")[0]),
        database=str(about.get("dbname") or about.get("user") or "postgres"),
        user=str(about.get("user") or "postgres"),
        slot=settings.event_log.slot,
        topic=settings.kafka.topic,
        record_bytes=settings.batch.max_document_bytes + HEADERS_BYTES,
        tls={name: str(about[name]) for name in _TLS if about.get(name)},
    )
    if settings.source_of("OUTBOX_PROJECTION") != "default":
        slug = slug_of(settings.projection)
        plan = replace(plan, name=f"{plan.name}-{slug}", prefix=slug)
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def connector_check(plan: ConnectorPlan, url: str, settings: ConnectSettings) -> ConnectorCheck:
    name, password = settings.username, settings.password
    login = (name, password.get_secret_value()) if name and password else None
    return ConnectorCheck(KafkaConnect(url, login=login, ca_certs=settings.ca_certs), plan)
