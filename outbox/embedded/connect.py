"""Owns an embedded Kafka Connect with Debezium's connector for PostgreSQL: one standalone process on loopback.

It keeps the position of its connectors in its folder, and forgets the connectors themselves when it stops.
"""

from __future__ import annotations

import http.client
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from outbox.embedded.connect_api import USER, ConnectApi
from outbox.embedded.es_command import QUICK_START
from outbox.embedded.find_kafka import find_debezium, find_kafka
from outbox.embedded.folders import default_data_dir
from outbox.embedded.java import Java
from outbox.embedded.kafka import LOGGING, as_properties, java_command
from outbox.embedded.process import Command
from outbox.embedded.progress import Report, to_stderr
from outbox.embedded.server import EmbeddedServer

BASIC: Final = "org.apache.kafka.connect.rest.basic.auth.extension"
# Without the quotes a path ends at a blank.
LOGIN: Final = f'KafkaConnect {{{{ {BASIC}.PropertyFileLoginModule required file="{{}}"; }}}};\n'
STRING: Final = "org.apache.kafka.connect.storage.StringConverter"


class EmbeddedConnect(EmbeddedServer):
    """Kafka Connect 4.1 on 127.0.0.1. `bootstrap` names the brokers.

    A connector's configuration may name a file for a secret: `${file:/path:key}`, or `${dir:/folder:file}`. So whoever
    reaches its API can learn the secret, by a connector that sends it elsewhere: `password` locks it, for the user
    `outbox`. Without it every account of the machine is let in.
    """

    title = "Connect"
    ready_seconds = 180.0
    port_taken_marks = ("Address already in use", "Unable to initialize REST server")

    def __init__(
        self,
        folder: Path,
        *,
        bootstrap: str,
        port: int | None = None,
        heap: str = "512m",
        password: str | None = None,
        settings: Mapping[str, object] | None = None,
        jvm_options: Sequence[str] = QUICK_START,
        data_dir: Path | None = None,
        report: Report = to_stderr,
    ) -> None:
        super().__init__(folder, port=port)
        self.settings = dict(settings or {})
        self.heap = heap
        self.password = password
        self._bootstrap = bootstrap
        self._jvm_options = jvm_options
        self._shared = data_dir or default_data_dir()
        self._report = report
        self._found: tuple[Path, Java, Path] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> ConnectApi:
        return ConnectApi(self.url, self.password)

    @property
    def users_file(self) -> Path:
        """Where the password stands, as a line `USER=PASSWORD`."""
        return self.folder / "config" / "users.properties"

    def _find(self) -> tuple[Path, Java, Path]:
        """Kafka's jars, a Java, Debezium; found or fetched at the first start only."""
        if self._found is None:
            jars, java = find_kafka(self._shared, self._account, self._report)
            self._found = jars, java, find_debezium(self._shared, self._account, self._report)
        return self._found

    def _prepare(self) -> None:
        self._find()
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        for name in ("config", "data", "tmp"):
            self._account.give_folder(self.folder / name)
        config = self.folder / "config"
        self._account.give_file(config / "worker.properties", as_properties(self._all_settings()))
        self._account.give_file(config / "log4j2.properties", LOGGING)
        if self.password is not None:
            self._account.give_file(self.users_file, as_properties({USER: self.password}))
            self._account.give_file(config / "login.conf", LOGIN.format(self.users_file))

    def _all_settings(self) -> dict[str, object]:
        providers = "org.apache.kafka.common.config.provider"
        return {
            "bootstrap.servers": self._bootstrap,
            "listeners": self.url,
            "key.converter": STRING,
            "value.converter": STRING,
            "offset.storage.file.filename": self.folder / "data" / "offsets",
            "offset.flush.interval.ms": 1000,
            "plugin.path": self._find()[2],
            # By their manifests, which all of these have: reading every class of Debezium takes seconds.
            "plugin.discovery": "service_load",
            "config.providers": "file,dir",
            "config.providers.file.class": f"{providers}.FileConfigProvider",
            "config.providers.dir.class": f"{providers}.DirectoryConfigProvider",
            **({"rest.extension.classes": f"{BASIC}.BasicAuthSecurityRestExtension"} if self.password else {}),
            **self.settings,
        }

    def _command(self) -> Command:
        jars, java, _ = self._find()
        main, config = "org.apache.kafka.connect.cli.ConnectStandalone", self.folder / "config" / "worker.properties"
        login = [f"-Djava.security.auth.login.config={config.with_name('login.conf')}"] if self.password else []
        options = [*self._jvm_options, *login]
        argv = java_command(java, jars, self.folder, self.heap, options, main, str(config))
        return Command(argv, self.folder, java.env, signal.SIGTERM)

    def keep_secret(self, name: str, value: str) -> Path:
        """A file with the line `NAME=VALUE` that only its account can read, for `${file:PATH:NAME}`."""
        return self._account.give_file(self.folder / "config" / f"{name}.properties", as_properties({name: value}))

    def _answers(self) -> bool:
        try:
            return "kafka_cluster_id" in self.api.call("GET", "/")
        except (OSError, http.client.HTTPException, ValueError):
            return False
