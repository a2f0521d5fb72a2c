"""The files that we ship for Kafka Connect and its role: who is not let in learns no password and copies no cluster."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from outbox.embedded.connect import EmbeddedConnect
from outbox.embedded.connect_api import ConnectApi
from outbox.embedded.errors import ConnectorRefused
from outbox.embedded.postgres import EmbeddedPostgres
from outbox.kafka.connect_rest import ConnectDown, KafkaConnect
from outbox.kafka.connector import ConnectorPlan
from outbox.kafka.connector_check import OPEN, ConnectorCheck
from outbox.ports import Level
from tests.fixtures.deployment import DEPLOY, ROOT

WORKER = DEPLOY / "systemd" / "kafka" / "connect-worker.properties"
PAGE = (ROOT / "docs" / "kafka-log.md").read_text(encoding="utf-8")
OF_THIS_MACHINE = ("bootstrap.servers", "listeners", "plugin.path", "offset.storage.file.filename")
DEBEZIUM = "io.debezium.connector.postgresql.PostgresConnector"
PLAN = ConnectorPlan("localhost", 5432, "shop", "outbox_connector", "outbox_log")


def shipped(file: Path) -> dict[str, str]:
    lines = (line for line in file.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def connect(server_folder: Path, kafka_url: str) -> Iterator[EmbeddedConnect]:
    """As the shipped file has it, but for the places of this machine."""
    settings: dict[str, Any] = {k: v for k, v in shipped(WORKER).items() if k not in OF_THIS_MACHINE}
    server = EmbeddedConnect(server_folder / "connect", bootstrap=kafka_url, password="let-me-in", settings=settings)
    settings["config.providers.file.param.allowed.paths"] = server.users_file  # it must be there at the start
    server.settings = settings
    with server:
        yield server


def echoed(api: ConnectApi, file: Path, key: str) -> str:
    """Validation quotes what is no number, once the secrets of the configuration are filled in."""
    config = {"connector.class": DEBEZIUM, "name": "any", "tasks.max": f"${{file:{file}:{key}}}"}
    return str(api.call("PUT", f"/connector-plugins/{DEBEZIUM}/config/validate", config))


@pytest.mark.release("it starts Kafka Connect once more; the shipped files have quick tests")
@pytest.mark.slow
def test_the_worker_as_shipped_asks_for_a_login_and_gives_out_one_file_alone(
    connect: EmbeddedConnect, connect_url: str
) -> None:
    """And `outbox doctor` names one that asks for none."""
    allowed, other = connect.users_file, connect.keep_secret("other", "canary")
    for password in (None, "wrong"):
        with pytest.raises(ConnectorRefused, match="401"):
            echoed(ConnectApi(connect.url, password), allowed, "outbox")
    assert "let-me-in" in echoed(connect.api, allowed, "outbox"), "who is let in learns what the file holds"
    assert "canary" not in echoed(connect.api, other, "other")

    def access(url: str, login: tuple[str, str] | None = None) -> list[Level]:
        found = ConnectorCheck(KafkaConnect(url, login=login), PLAN).state()
        return [finding.level for finding in found if finding.name == OPEN]

    assert access(connect_url) == [Level.WARN]
    assert access(connect.url, ("outbox", "let-me-in")) == []
    with pytest.raises(ConnectDown, match="KAFKA_CONNECT_USERNAME"):
        access(connect.url)


def test_every_worker_that_we_ship_is_on_loopback_with_a_login_and_one_file() -> None:
    files = sorted(DEPLOY.rglob("connect-worker.properties"))
    assert len(files) == 2
    for file in files:
        settings = shipped(file)
        assert urlsplit(settings["listeners"]).hostname == "127.0.0.1"
        assert settings["rest.extension.classes"].endswith("BasicAuthSecurityRestExtension")
        assert settings["config.providers"] == "file"
        assert settings["config.providers.file.param.allowed.paths"].endswith("/connector.properties")


@pytest.fixture
def postgres(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    settings = {"fsync": "off", "wal_level": "logical"}
    with EmbeddedPostgres(server_folder / "guarded", settings=settings) as running:
        with psycopg.connect(running.url, autocommit=True) as owner:
            owner.execute("create database shop")
            owner.execute("create role outbox_connector login replication password 'x'")
        yield running


def reached(postgres: EmbeddedPostgres, database: str, replication: str) -> bool:
    """Whether the connector's role gets a session there; a walsender's for a copy of the cluster, or of a slot."""
    url = f"host=127.0.0.1 port={postgres.port} user=outbox_connector password=x dbname={database}"
    session = psycopg.pq.PGconn.connect(f"{url} replication={replication}".encode())
    try:
        if session.status != psycopg.pq.ConnStatus.OK:
            assert b"pg_hba.conf reject" in session.error_message, session.error_message
            return False
        return session.exec_(b"IDENTIFY_SYSTEM" if replication != "false" else b"select 1").status == (
            psycopg.pq.ExecStatus.TUPLES_OK
        )
    finally:
        session.finish()


def test_the_lines_of_the_page_admit_the_connector_to_its_database_and_refuse_a_copy_of_the_cluster(
    postgres: EmbeddedPostgres,
) -> None:
    everywhere = [
        ("shop", "false"),
        ("shop", "database"),
        ("shop", "true"),
        ("postgres", "false"),
        ("postgres", "database"),
    ]
    assert [reached(postgres, *place) for place in everywhere] == [True] * 5
    (lines,) = re.findall(r"```\n(hostssl .*?)```", PAGE, re.DOTALL)
    # This server has no TLS, and its client is on loopback.
    lines = lines.replace("hostssl", "host   ").replace("10.0.0.7/32", "127.0.0.1/32")
    file = postgres.folder / "data" / "pg_hba.conf"
    file.write_text(lines + file.read_text())
    with psycopg.connect(postgres.url, autocommit=True) as owner:
        owner.execute("select pg_reload_conf()")
        errors = owner.execute("select error from pg_hba_file_rules where error is not null").fetchall()
    assert errors == []
    assert [reached(postgres, *place) for place in everywhere] == [True, True, False, False, False]
