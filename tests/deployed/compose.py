"""Owns the part `docker`: the shipped compose files unchanged, from `up` to `down`, with the table and with Kafka."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from elasticsearch import Elasticsearch

from labs.client import connect
from outbox.kafka.connector import TOPIC
from tests.deployed import images, monitoring, scenario
from tests.deployed.engine import Engine
from tests.deployed.scenario import Figures
from tests.deployed.shell import DeploymentFailed, MissingSoftware, await_until, say

PROJECT = "outbox-deployed"  # not the files' own name: that one may be somebody's, with data
INFRA = "docker-compose.infra.yml"
KAFKA = "docker-compose.kafka.yml"
IMAGES = ("python:3.13.5-slim-bookworm", "postgres:18.1", "elasticsearch:8.14.1", monitoring.IMAGE, monitoring.MANAGER)
IMAGES_KAFKA = ("apache/kafka:4.1.0", "maven:3.9-eclipse-temurin-17")
PORTS = (5435, 9200, 8090, 9090)
CONSOLE = "http://127.0.0.1:8090"
SAMPLE_EVENTS = 301
# The bridge is on this machine, and one event of the sample is there to fail.
EXPECTED_WARNINGS = {"transport", "failed"}
KAFKA_PANELS = frozenset({"internals: Connector", "internals: Oldest record", "internals: Slot of the event log"})
# Of what no run does: a webhook, and rows that are older than the retention.
NO_PANELS = frozenset({"internals: Webhook deliveries per second", "internals: Rows pruned per second"})
BY = ("--by", "deployed", "--reason", "to see the alert")
READY = "import urllib.request as u; u.urlopen('http://127.0.0.1:9108/readyz', timeout=3)"


class Compose:
    """The stack of the shipped files, as people start and handle it."""

    database_url = "postgresql://wordloom:wordloom@127.0.0.1:5435/wordloom_dev"
    elastic_url = "http://127.0.0.1:9200"
    index = "wordloom-dev-search-index"
    expected_failures = 1  # of the sample, for the console to show

    def __init__(self, engine: Engine, *files: str) -> None:
        self.engine = engine
        self._files = [word for name in files for word in ("-f", name)]

    def compose(self, *words: str, profile: str = "app", limit: float = 600, check: bool = True) -> str:
        chosen = ["compose", "-p", PROJECT, *self._files, "--profile", profile]
        return self.engine.docker(*chosen, *words, limit=limit, check=check)

    # What the scenario does

    def client(self) -> Elasticsearch:
        return connect(self.elastic_url)

    def owner(self, *arguments: str) -> str:
        return self.compose("run", "--rm", "-T", "--no-deps", "migrate", *arguments)

    def operator(self, *arguments: str) -> str:
        return self.compose("exec", "-T", "console", "outbox", *arguments)

    def start(self) -> None:
        self.compose("up", "-d", "--no-deps", "--no-recreate", "--scale", "projector=2", "projector")
        for container in self.projectors():
            self._await_ready(container)

    def roll(self) -> None:
        for container in self.projectors():
            self.engine.docker("stop", container)
            self._check_stopped(container)
            self.engine.docker("rm", container)
            self.start()

    def kill(self) -> None:
        container = self.projectors()[0]
        before = self._state(container)["Pid"]
        control_group = Path(f"/proc/{before}/cgroup")
        if control_group.exists() and container in control_group.read_text():
            os.kill(before, signal.SIGKILL)
        else:  # the engine is on another machine, or in one; such a kill counts as a stop, without a restart
            self.engine.docker("kill", container)
            self.engine.docker("start", container)
        await_until(lambda: self._state(container)["Pid"] not in (0, before), "a new process", 60)
        self._await_ready(container)

    def stop(self) -> None:
        containers = self.projectors()
        self.compose("stop", "projector")
        for container in containers:
            self._check_stopped(container)

    def restart_database(self) -> None:
        self._restart("db")

    def restart_search(self) -> None:
        self._restart("es")

    def _restart(self, service: str) -> None:
        self.compose("restart", "--no-deps", service)
        [container] = self.compose("ps", "-q", service).split()
        await_until(lambda: self._state(container)["Health"]["Status"] == "healthy", f"{service} healthy", 600)

    # What it asks for

    def projectors(self) -> list[str]:
        return self.compose("ps", "-q", "projector").split()

    def _state(self, container: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.engine.docker("inspect", "-f", "{{json .State}}", container))
        return state

    def _await_ready(self, container: str) -> None:
        await_until(lambda: self.engine.docker("exec", container, "python", "-c", READY) == "", "a ready projector")

    def _check_stopped(self, container: str) -> None:
        state = self._state(container)
        if state["ExitCode"] != 0:
            log = self.engine.docker("logs", "--tail", "20", container)
            raise DeploymentFailed(f"a projector ended with {state['ExitCode']}: {log}")


@contextmanager
def up(engine: Engine, *files: str, services: tuple[str, ...] = ()) -> Iterator[Compose]:
    """`up` of everything or of these, and `down` of everything with its volumes, whatever happens."""
    _check_ports()
    stack = Compose(engine, *files)
    try:
        stack.compose("up", "-d", "--quiet-pull", *(("--wait", *services) if services else ()))
        yield stack
    except Exception:
        say(stack.compose("logs", "--tail", "8", check=False))
        raise
    finally:
        for profile in ("app", "monitoring"):
            stack.compose("down", "-v", "--remove-orphans", "-t", "35", profile=profile)


def _check_ports() -> None:
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise MissingSoftware(f"port {port} is taken; the compose files publish it")


def prepare(engine: Engine, only_standins: bool, *, with_kafka: bool = False) -> str:
    """Parents pulled or stood in for; what is built from them, the projector's and Connect's, by the shipped files."""
    kinds = images.provide(engine, IMAGES + (IMAGES_KAFKA if with_kafka else ()), only_standins)
    files = (INFRA, KAFKA) if with_kafka else (INFRA,)
    Compose(engine, *files).compose("build", "--quiet", limit=1800)
    return kinds


def play(engine: Engine, figures: Figures) -> None:
    """With the table; a Prometheus as shipped sees all of it."""
    with up(engine, INFRA) as stack:
        stack.compose("up", "-d", "--wait", "prometheus", profile="monitoring")
        figures["doctor"] = findings(stack)
        stack.start()
        scenario.prepare(stack)
        scenario.play(stack, figures)
        # Of everything: inconclusive, because the sample's payloads are in no view, and still a result, which the
        # projectors hear of within a minute.
        stack.compose("exec", "-T", "console", "outbox", "verify", check=False)
        for word in ("pause", "resume"):
            stack.operator(word, *BY)
        wrong_tokens()
        replay(stack)
        # The last acts are seen by the next scrapes.
        without = KAFKA_PANELS | NO_PANELS
        await_until(lambda: figures.update(monitoring=monitoring.check(without)) is None, "panels and rules", 120)
        say(f"   monitoring: {figures['monitoring']}")


def wrong_tokens() -> None:
    for _ in range(30):
        request = urllib.request.Request(f"{CONSOLE}/api/v1/ops", headers={"Authorization": "Bearer obx_wrong"})
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=10)


def replay(stack: Compose) -> None:
    """The events fail again, which is the exit code of `--wait`."""
    stack.compose("exec", "-T", "console", "outbox", "replay", *BY, "--all", "--yes", "--wait", check=False)


def play_kafka(engine: Engine, figures: Figures, also: Callable[[Compose, Figures], None]) -> None:
    """The events of the sample and of an attached table go through the log, Debezium and Kafka."""
    with up(engine, INFRA, KAFKA) as stack:
        stack.compose("up", "-d", "--wait", "prometheus", profile="monitoring")
        figures["doctor"] = findings(stack)
        sampled = figures["records_of_the_sample"] = offsets(stack)
        scenario.prepare(stack)
        changed = figures["a thousand changes"] = scenario.thousand_changes(stack)
        await_until(lambda: offsets(stack) >= sampled + changed["changes"], "offsets that count every change", 60)
        figures["records"] = offsets(stack)
        if sampled < SAMPLE_EVENTS:
            raise DeploymentFailed(f"the sample went past Kafka: {figures}")
        bare = monitoring.check(None)["panels_without_series"]
        if missing := KAFKA_PANELS & set(bare):
            raise DeploymentFailed(f"panels without a series: {sorted(missing)}")
        figures["panels"] = sorted(KAFKA_PANELS)
        also(stack, figures.setdefault("alerts", {}))


def offsets(stack: Compose) -> int:
    """Records of the topic, over all partitions, that the group has committed."""
    tool = "/opt/kafka/bin/kafka-consumer-groups.sh"
    words = ("exec", "-T", "kafka", tool, "--bootstrap-server", "localhost:9092", "--describe", "--all-groups")
    rows = [line.split() for line in stack.compose(*words).splitlines() if TOPIC in line]
    return sum(int(row[3]) for row in rows if row[3].isdigit())


def findings(stack: Compose) -> list[str]:
    """What `doctor` of the projector does not call ok in the showcase as it was started."""
    stack.operator("wait", "--caught-up", "--timeout", "120")
    told = json.loads(stack.compose("exec", "-T", "projector", "outbox", "doctor", "--json", check=False))
    found = [each for each in told["findings"] if each["verdict"] != "ok"]
    if {each["name"] for each in found} - EXPECTED_WARNINGS:
        raise DeploymentFailed(f"doctor: {found}")
    return [f"{each['verdict']}: {each['name']}: {each['detail']}" for each in found]
