"""Owns an embedded Kafka Connect with Debezium's connector for PostgreSQL: one standalone process on loopback.

It keeps the position of its connectors in its folder, and forgets the connectors themselves when it stops.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final, Unpack

from urllib3.exceptions import HTTPError

from outbox.embedded.connect_api import USER, ConnectApi
from outbox.embedded.errors import ConnectorRefused
from outbox.embedded.java import Java
from outbox.embedded.java_server import JavaOptions
from outbox.embedded.kafka import KafkaProgram, as_properties
from outbox.embedded.process import Command
from outbox.embedded.supplies import find_debezium

BASIC: Final = "org.apache.kafka.connect.rest.basic.auth.extension"
# Without the quotes a path ends at a blank.
LOGIN: Final = f'KafkaConnect {{{{ {BASIC}.PropertyFileLoginModule required file="{{}}"; }}}};\n'
STRING: Final = "org.apache.kafka.connect.storage.StringConverter"


class EmbeddedConnect(KafkaProgram):
    """Kafka Connect 4.1 on 127.0.0.1. `bootstrap` names the brokers.

    A connector's configuration may name a file for a secret: `${file:/path:key}`, or `${dir:/folder:file}`. So whoever
    reaches its API can learn the secret, by a connector that sends it elsewhere: `password` locks it, for the user
    `outbox`. Without it every account of the machine is let in.
    """

    title = "Connect"

    def __init__(self, folder: Path, *, bootstrap: str, **options: Unpack[JavaOptions]) -> None:
        super().__init__(folder, **options)
        self._bootstrap = bootstrap

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> ConnectApi:
        return ConnectApi(self.url, self.password)

    @property
    def users_file(self) -> Path:
        """Where the password stands, as a line `USER=PASSWORD`."""
        return self._config / "users.properties"

    def _find(self) -> tuple[Path, Java]:
        found = super()._find()
        self._plugins = find_debezium(self._shared, self._account, self._report)
        return found

    def _files(self) -> dict[str, str]:
        files = {"worker.properties": as_properties(self._all_settings())}
        if self.password is not None:
            files[self.users_file.name] = as_properties({USER: self.password})
            files["login.conf"] = LOGIN.format(self.users_file)
        return files

    def _all_settings(self) -> dict[str, object]:
        providers = "org.apache.kafka.common.config.provider"
        return {
            "bootstrap.servers": self._bootstrap,
            "listeners": self.url,
            "key.converter": STRING,
            "value.converter": STRING,
            "offset.storage.file.filename": self.folder / "data" / "offsets",
            "offset.flush.interval.ms": 1000,
            "plugin.path": self._plugins,
            # By their manifests, which all of these have: reading every class of Debezium takes seconds.
            "plugin.discovery": "service_load",
            "config.providers": "file,dir",
            "config.providers.file.class": f"{providers}.FileConfigProvider",
            "config.providers.dir.class": f"{providers}.DirectoryConfigProvider",
            **({"rest.extension.classes": f"{BASIC}.BasicAuthSecurityRestExtension"} if self.password else {}),
            **self.settings,
        }

    def _command(self) -> Command:
        main, config = "org.apache.kafka.connect.cli.ConnectStandalone", str(self._config / "worker.properties")
        return Command(self._java(self.heap, main, config), self.folder, self._found[1].env, signal.SIGTERM)

    def _java_options(self, heap: str) -> list[str]:
        login = [f"-Djava.security.auth.login.config={self._config / 'login.conf'}"] if self.password else []
        return [*super()._java_options(heap), *login]

    def keep_secret(self, name: str, value: str) -> Path:
        """A file with the line `NAME=VALUE` that only its account can read, for `${file:PATH:NAME}`."""
        return self._account.give_file(self._config / f"{name}.properties", as_properties({name: value}))

    def _answers(self) -> bool:
        try:
            return "kafka_cluster_id" in self.api.call("GET", "/")
        except (HTTPError, ValueError, ConnectorRefused):
            return False
