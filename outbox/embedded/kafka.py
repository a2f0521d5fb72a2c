"""Owns an embedded Kafka on loopback, one broker that is its own controller: its files and its command."""

from __future__ import annotations

import base64
import secrets
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Unpack

from outbox.embedded.errors import EmbeddedServerFailed
from outbox.embedded.java import Java
from outbox.embedded.java_server import JavaOptions, JavaServer
from outbox.embedded.process import Command, free_port
from outbox.embedded.supplies import find_kafka

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
SERVER_FILE: Final = "server.properties"
STARTED: Final = b"Kafka Server started"


def as_properties(settings: Mapping[str, object]) -> str:
    """Java's format, whose files are Latin-1 and where a backslash escapes."""
    lines = [f"{name}={str(value).replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()]
    return "".join(character if ord(character) < 128 else f"\\u{ord(character):04x}" for character in "".join(lines))


def new_cluster_id() -> str:
    """16 bytes in base64. The first is 0, so that it never begins with a dash, which would be an option."""
    return base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")


class KafkaProgram(JavaServer):
    log_pattern = "[%d{ISO8601}][%-5p][%c{1.}] %m%n%throwable"

    def _find(self) -> tuple[Path, Java]:
        return find_kafka(self._shared, self._account, self._report)

    def _java(self, heap: str, main: str, *arguments: str) -> list[str]:
        jars, java = self._found
        logging = f"-Dlog4j2.configurationFile={self._config / 'log4j2.properties'}"
        options = [*self._java_options(heap), "-Djava.awt.headless=true", logging]
        return [java.program, *options, "-cp", f"{jars}/*", main, *arguments]


class EmbeddedKafka(KafkaProgram):
    """Kafka 4.1 in KRaft mode on 127.0.0.1, without a password: its data is what a test or a sample writes.

    `voters` are the controllers of its cluster, with the port of each by its node; without them it is alone.
    """

    title = "Kafka"
    heap = "256m"

    def __init__(
        self,
        folder: Path,
        *,
        node: int = 1,
        voters: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
        **options: Unpack[JavaOptions],
    ) -> None:
        super().__init__(folder, **options)
        self.node = node
        self._voters = voters
        self._cluster_id = cluster_id or new_cluster_id()

    @property
    def url(self) -> str:
        """For `bootstrap.servers`; it has no scheme."""
        return f"127.0.0.1:{self.port}"

    def _files(self) -> dict[str, str]:
        return {SERVER_FILE: as_properties(self._all_settings())}

    def _prepare(self) -> None:
        super()._prepare()
        if not (self.folder / "data" / "meta.properties").exists():
            place = ("-t", self._cluster_id, "-c", str(self._config / SERVER_FILE))
            self._run_tool("kafka.tools.StorageTool", "format", *place)

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

    def _command(self) -> Command:
        argv = self._java(self.heap, "kafka.Kafka", str(self._config / SERVER_FILE))
        return Command(argv, self.folder, self._found[1].env, signal.SIGTERM)

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
