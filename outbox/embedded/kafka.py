"""Owns an embedded Kafka on loopback, one broker that is its own controller: its files, its command. It knows no topic.

`kafka_cluster.py` joins several.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from outbox.embedded.errors import EmbeddedServerFailed
from outbox.embedded.es_command import QUICK_START
from outbox.embedded.find_kafka import find_kafka
from outbox.embedded.folders import default_data_dir
from outbox.embedded.java import Java
from outbox.embedded.process import MARK, Command, free_port
from outbox.embedded.progress import Report, to_stderr
from outbox.embedded.server import EmbeddedServer

LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n%throwable
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
SETTINGS: Final = {
    # The usual 128 MB do not fit into a heap of 256 MB: it would not start.
    "log.cleaner.dedupe.buffer.size": "16777216",
    # The usual 50 partitions are 150 files, made when the first group is seen.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
STARTED: Final = b"Kafka Server started"


def as_properties(settings: Mapping[str, object]) -> str:
    """Java's format, whose files are Latin-1 and where a backslash escapes."""
    lines = [f"{name}={str(value).replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()]
    return "".join(character if ord(character) < 128 else f"\\u{ord(character):04x}" for character in "".join(lines))


def new_cluster_id() -> str:
    """16 bytes in base64. The first is 0, so that it never begins with a dash, which would be an option."""
    return base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")


class EmbeddedKafka(EmbeddedServer):
    """Kafka 4.1 in KRaft mode on 127.0.0.1, without a password: its data is what a test or a sample writes.

    `voters` are the controllers of its cluster, with the port of each by its node; without them it is alone.
    """

    title = "Kafka"
    ready_seconds = 180.0
    port_taken_marks = ("Address already in use",)

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        heap: str = "256m",
        settings: Mapping[str, object] | None = None,
        jvm_options: Sequence[str] = QUICK_START,
        node: int = 1,
        voters: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
        data_dir: Path | None = None,
        report: Report = to_stderr,
    ) -> None:
        super().__init__(folder, port=port)
        self.settings = dict(settings or {})
        self.heap = heap
        self.node = node
        self._jvm_options = jvm_options
        self._voters = voters
        self._cluster_id = cluster_id or new_cluster_id()
        self._shared = data_dir or default_data_dir()
        self._report = report
        self._found: tuple[Path, Java] | None = None

    @property
    def url(self) -> str:
        """For `bootstrap.servers`; it has no scheme."""
        return f"127.0.0.1:{self.port}"

    @property
    def _config(self) -> Path:
        return self.folder / "config" / "server.properties"

    def _find(self) -> tuple[Path, Java]:
        """The jars and a Java; found or fetched at the first start only."""
        if self._found is None:
            self._found = find_kafka(self._shared, self._account, self._report)
        return self._found

    def _prepare(self) -> None:
        self._find()
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        for name in ("config", "data", "tmp"):
            self._account.give_folder(self.folder / name)
        self._account.give_file(self._config, as_properties(self._all_settings()))
        self._account.give_file(self.folder / "config" / "log4j2.properties", LOGGING)
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()

    def _all_settings(self) -> dict[str, object]:
        # Alone, a new port at each start is fine: its own log keeps none of them.
        voters = self._voters or {self.node: free_port()}
        copies = min(len(voters), 3)
        return {
            "process.roles": "broker,controller",
            "node.id": self.node,
            "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{voters[self.node]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            **dict.fromkeys(_COPIED, copies),
            **dict.fromkeys(_CONFIRMED, max(1, copies - 1)),
            **SETTINGS,
            **self.settings,
        }

    def _format(self) -> None:
        self._run_tool("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(self._config))

    def create_topic(self, name: str, partitions: int, **config: object) -> None:
        """Does nothing if it is there. `config` with underscores for dots, such as `max_message_bytes`."""
        options = [f"--config={option.replace('_', '.')}={value}" for option, value in config.items()]
        place = [f"--topic={name}", f"--partitions={partitions}", f"--bootstrap-server={self.url}"]
        self._run_tool("org.apache.kafka.tools.TopicCommand", "--create", "--if-not-exists", *place, *options)

    def _run_tool(self, main: str, *arguments: str) -> None:
        try:
            self._account.run(self._java("64m", main, *arguments), self.folder)
        except subprocess.CalledProcessError as failed:
            raise EmbeddedServerFailed(f"{self.title}, {main}: {failed.stdout}{failed.stderr}".strip()) from None

    def _java(self, heap: str, main: str, *arguments: str) -> list[str]:
        jars, java = self._find()
        return java_command(java, jars, self.folder, heap, self._jvm_options, main, *arguments)

    def _command(self) -> Command:
        argv = self._java(self.heap, "kafka.Kafka", str(self._config))
        return Command(argv, self.folder, self._find()[1].env, signal.SIGTERM)

    def _answers(self) -> bool:
        """By its own log, which is new at each start: it listens before it is a member of its cluster."""
        return self.running and STARTED in self.log.read_bytes()


# How many brokers keep each record of these topics, and how many of them must confirm a write.
_COPIED = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "default.replication.factor",
)
_CONFIRMED = ("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr", "min.insync.replicas")


def java_command(
    java: Java, jars: Path, folder: Path, heap: str, options: Sequence[str], main: str, *arguments: str
) -> list[str]:
    """A program of Kafka with its logging, its temporary files and our mark in `folder`."""
    return [
        java.program,
        f"-Xmx{heap}",
        *options,
        f"{MARK}{folder}",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dlog4j2.configurationFile={folder / 'config' / 'log4j2.properties'}",
        "-cp",
        f"{jars}/*",
        main,
        *arguments,
    ]
