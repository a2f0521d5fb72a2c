"""The command `up`: everything on one machine, with where it is and a line now and then. `app.up` runs it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import typer

from outbox import cli
from outbox.cli import Json, flag
from outbox.cli.status import print_line
from outbox.daemon.shutdown import Stop

if TYPE_CHECKING:
    from outbox.app.up import Addresses, Up

commands = typer.Typer()
QUERY = "title:coffee"
FIRST_SIGNS_SECONDS = 60.0
LINE_SECONDS = 5.0


class ServerChoice(StrEnum):
    """`opensearch` is OpenSearch 3; the version of Elasticsearch is in OUTBOX_ES_VERSION."""

    ELASTICSEARCH = "elasticsearch"
    OPENSEARCH = "opensearch"
    OPENSEARCH_2 = "opensearch-2"
    OPENSEARCH_3 = "opensearch-3"


@commands.command(rich_help_panel="Run")
def up(
    rate: float = flag(3.0, "--rate", "Changes of the sample per second; 0: no sample.", min=0, max=1000),
    product: ServerChoice = flag(
        ServerChoice.ELASTICSEARCH, "--product", "The search server to start, if ELASTIC_URL does not name one."
    ),
    kafka: bool = flag(False, "--kafka", "Also Kafka and Debezium: the projector reads the events from Kafka."),
    json: Json = False,
) -> None:
    """Start everything on this machine: PostgreSQL, Elasticsearch, sample, projector, console. Ctrl-C stops it.

    Only what DATABASE_URL and ELASTIC_URL do not name is started. Data is kept under OUTBOX_DATA_DIR and found again;
    OpenSearch has its own, and so has Kafka. Not for production.

    Examples:
      outbox up
      outbox up --kafka
      ELASTIC_URL=http://localhost:9200 outbox up
    """
    # Until everything runs, a signal unwinds what was started; from then on it ends the waiting (exit 0).
    with cli.open_up(rate, product.value, cli.note, with_kafka=kafka) as running:
        where = running.start()
        asked = Stop()
        asked.install()
        stop = asked.event
        _await_first_signs(running, where, stop)
        if json:
            cli.as_json(asdict(where) | {"search": search(where)}, compact=True)
        else:
            _tell(where)
        while not stop.wait(LINE_SECONDS):
            print_line(running.read, json=json)
        cli.note("\nstopping")
    cli.note("stopped")


def _await_first_signs(running: Up, where: Addresses, stop: threading.Event) -> None:
    """So that the pages that are printed answer and the search finds something. Raises when a part ends before."""
    deadline = time.monotonic() + FIRST_SIGNS_SECONDS

    def all_there() -> bool:
        pages = running.listens(where.metrics_url) and running.listens(where.console_url)
        return pages and (not where.sample or running.found(QUERY) > 0)

    while not stop.is_set() and time.monotonic() < deadline and not all_there():
        running.read()
        stop.wait(0.2)


def search(where: Addresses) -> str:
    shown = "filter_path=hits.total.value,hits.hits._source.title"
    from urllib.request import getproxies_environment  # noqa: PLC0415

    # curl would ask a proxy of the environment for 127.0.0.1; said only where there is one.
    direct = " --noproxy '*'" if {"http", "all"} & set(getproxies_environment()) else ""
    return f"curl -s{direct} '{where.elastic_url}/{where.index}/_search?q={QUERY}&size=3&{shown}'"


def _tell(where: Addresses) -> None:
    connect = f"{where.connect_url}, user {where.connect_username}"
    rows = {
        "console": where.console_url or "not installed: pip install 'outbox-projector[console]'",
        "PostgreSQL": where.database_url,
        where.search_server: f"{where.elastic_url}, index {where.index}",
        **({"Kafka": where.kafka, "Kafka Connect": connect} if where.kafka else {}),
        "metrics": f"{where.metrics_url}/metrics" if where.metrics_url else "off",
        "health": f"{where.metrics_url}/readyz" if where.metrics_url else "off",
        **{f"{name} log": path for name, path in where.logs.items()},
    }
    cli.line("outbox is up. Ctrl-C stops all of it.\n")
    for name, value in rows.items():
        cli.line(f"  {name:<15} {value}")
    if where.sample:
        cli.line("\n  A catalogue of articles is changing. Search it:\n")
        cli.line(f"  {search(where)}")
    cli.line("\n  Try it in another terminal:\n")
    for command in commands_to_try(where):
        cli.line(f"  {command}")
    cli.line()
    sys.stdout.flush()


def commands_to_try(where: Addresses) -> list[str]:
    """Commands that work as they are in a fresh terminal, from any folder."""
    return [
        *on_the_path(),
        f"export DATABASE_URL_FILE={quote(where.database_url_file)}",
        f"export ELASTIC_URL={quote(where.elastic_url)} ELASTIC_INDEX={quote(where.index)}",
        *(_stream_commands(where) if where.kafka else []),
        "outbox status; outbox list --status done; outbox doctor",
    ]


def _stream_commands(where: Addresses) -> list[str]:
    password = f"KAFKA_CONNECT_PASSWORD_FILE={quote(where.connect_password_file)}"
    login = f"KAFKA_CONNECT_USERNAME={where.connect_username} {password}"
    return [
        f"export OUTBOX_SOURCE=kafka KAFKA_BOOTSTRAP_SERVERS={quote(where.kafka)}",
        f"export KAFKA_CONNECT_URL={quote(where.connect_url)} {login}",
    ]


def on_the_path() -> list[str]:
    """What makes `outbox` this program in a terminal where no virtual environment is active; often nothing."""
    programs = Path(sys.prefix) / "bin"
    usual = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if Path(folder) != programs]
    found = shutil.which("outbox", path=os.pathsep.join(usual))
    if found and Path(found).resolve() == (programs / "outbox").resolve():
        return []  # pipx and the like link it into a folder of the PATH
    if (programs / "activate").exists():
        return [f". {quote(str(programs / 'activate'))}"]
    return [] if shutil.which("outbox") else [f"export PATH={quote(str(programs))}:$PATH"]
