"""The command `kafka connector`: prints the configuration of the Debezium connector, or checks a running one."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, option
from outbox.cli.doctor import leave_by, print_findings
from outbox.errors import UsageError
from outbox.kafka.connector import configuration
from outbox.kafka.connector import properties as as_properties
from outbox.kafka.plan import connector_check, connector_plan

commands = typer.Typer()
kafka = typer.Typer(no_args_is_help=True, help="Configure and check the connector that brings the event log to Kafka.")
commands.add_typer(kafka, name="kafka", rich_help_panel="Install")


@kafka.callback()
def group() -> None:
    """Without this typer would take the only command for the group."""


@kafka.command()
def connector(
    name: Annotated[
        str | None, option("--name", "Name of the connector (outbox-log; with OUTBOX_PROJECTION its name too).")
    ] = None,
    topic: Annotated[str | None, option("--topic", "Topic of the events; else from KAFKA_TOPIC.")] = None,
    host: Annotated[str | None, option("--host", "PostgreSQL as Connect reaches it; else from DATABASE_URL.")] = None,
    port: Annotated[int | None, option("--port", "Its port; else from DATABASE_URL.")] = None,
    user: Annotated[str | None, option("--user", "The connector's role; else from DATABASE_URL.")] = None,
    schema: Annotated[str | None, option("--schema", "Schema of search_outbox_log (public).")] = None,
    publication: Annotated[
        str | None, option("--publication", "Of a part of the log, for several connectors (outbox_log).")
    ] = None,
    secrets: Annotated[
        str | None, option("--secrets", "File on the Connect worker with a line password=... .", "FILE")
    ] = None,
    partitions: Annotated[int | None, option("--partitions", "Of the topic, if Connect makes it (6).")] = None,
    replication: Annotated[
        int | None, option("--replication", "Of the topic, if Connect makes it (the broker's default).")
    ] = None,
    record_bytes: Annotated[
        int | None, option("--record-bytes", "Largest record; else OUTBOX_MAX_DOCUMENT_BYTES and 1 MiB.")
    ] = None,
    properties: Annotated[bool, option("--properties", "A properties file for connect-standalone.")] = False,
    check: Annotated[
        str | None, option("--check", "Compare the connector that runs there with this, and say its state.", "URL")
    ] = None,
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
