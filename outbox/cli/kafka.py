"""The command `kafka connector`: prints the configuration of the Debezium connector, or checks a running one."""

from __future__ import annotations

import typer

from outbox import cli
from outbox.cli import Json, flag
from outbox.cli.doctor import leave_by, print_findings
from outbox.errors import UsageError
from outbox.kafka.connector import configuration
from outbox.kafka.connector import properties as as_properties
from outbox.kafka.connector_settings import connector_check, connector_plan

commands = typer.Typer()
kafka = typer.Typer(no_args_is_help=True, help="Configure and check the connector that brings the event log to Kafka.")
commands.add_typer(kafka, name="kafka", rich_help_panel="Install")


@kafka.callback()
def group() -> None:
    """Without this typer would take the only command for the group."""


@kafka.command()
def connector(
    name: str | None = flag(None, "--name", "Name of the connector (outbox-log; with OUTBOX_PROJECTION its name too)."),
    topic: str | None = flag(None, "--topic", "Topic of the events; else from KAFKA_TOPIC."),
    host: str | None = flag(None, "--host", "PostgreSQL as Connect reaches it; else from DATABASE_URL."),
    port: int | None = flag(None, "--port", "Its port; else from DATABASE_URL."),
    user: str | None = flag(None, "--user", "The connector's role; else from DATABASE_URL."),
    schema: str | None = flag(None, "--schema", "Schema of search_outbox_log (public)."),
    publication: str | None = flag(None, "--publication", "Of a part of the log, for several connectors (outbox_log)."),
    secrets: str | None = flag(None, "--secrets", "File on the Connect worker with a line password=... .", "FILE"),
    partitions: int | None = flag(None, "--partitions", "Of the topic, if Connect makes it (6).", min=1),
    replication: int | None = flag(
        None, "--replication", "Of the topic, if Connect makes it (the broker's default).", min=-1
    ),
    record_bytes: int | None = flag(
        None, "--record-bytes", "Largest record; else OUTBOX_MAX_DOCUMENT_BYTES and 1 MiB."
    ),
    properties: bool = flag(False, "--properties", "A properties file for connect-standalone."),
    check: str | None = flag(
        None, "--check", "Compare the connector that runs there with this, and say its state.", "URL"
    ),
    json: Json = False,
) -> None:
    """Print the configuration of the Debezium connector that reads search_outbox_log, without the password.

    The output is what `PUT /connectors/outbox-log/config` takes. With --check, ask a running Kafka Connect instead
    and exit 1 if it has a problem; its login is in KAFKA_CONNECT_USERNAME and KAFKA_CONNECT_PASSWORD_FILE. Connects to
    nothing else.

    Examples:
      outbox kafka connector --user outbox_connector > config.json
      outbox kafka connector --properties > outbox-log.properties
      outbox kafka connector --check http://localhost:8083
    """
    if check is not None and properties:
        raise UsageError("--check and --properties exclude each other")
    given = {"name": name, "topic": topic, "host": host, "port": port, "user": user, "schema": schema}
    given |= {"publication": publication, "secrets": secrets, "partitions": partitions}
    given |= {"replication": replication, "record_bytes": record_bytes}
    settings = cli.settings()
    plan = connector_plan(settings, **given)
    if check is not None:
        leave_by(print_findings(connector_check(plan, check, settings.connect).examine(), json=json))
    elif properties:
        cli.line(as_properties(plan).rstrip("\n"))
    else:
        cli.as_json(configuration(plan))
