"""Describes an embedded Elasticsearch: its settings, its security, its command. `search.py` runs it."""

from __future__ import annotations

import signal
import subprocess

from outbox.embedded.errors import EmbeddedServerFailed
from outbox.embedded.java_server import QUICK_START
from outbox.embedded.process import MARK, Command
from outbox.embedded.products import ELASTICSEARCH
from outbox.embedded.search_server import EmbeddedSearch


class EmbeddedElasticsearch(EmbeddedSearch):
    """With `password`, security is on and the user is `elastic`."""

    product = ELASTICSEARCH
    title = ELASTICSEARCH.title
    user = "elastic"

    def _own_settings(self) -> dict[str, object]:
        settings: dict[str, object] = {"xpack.security.enabled": self.password is not None}
        if self._distribution.has_module("x-pack-ml"):
            settings["xpack.ml.enabled"] = False
        if self._tls is not None:
            prefix = "xpack.security.http.ssl"
            settings |= {f"{prefix}.enabled": True, f"{prefix}.certificate": "http.crt", f"{prefix}.key": "http.key"}
        return settings

    def _files(self) -> dict[str, str]:
        files = {**super()._files(), "jvm.options": "\n".join(self._java_options(self.heap)) + "\n"}
        if self._tls is not None:
            files |= {"http.crt": self._tls.certificate.read_text(), "http.key": self._tls.key.read_text()}
        return files

    def _prepare(self) -> None:
        super()._prepare()
        if self.password is not None and not (self._config / "elasticsearch.keystore").exists():
            self._keystore("create")
            self._keystore("add", "--stdin", "bootstrap.password", secret=self.password)

    def _keystore(self, *arguments: str, secret: str = "") -> None:
        """Runs the keystore tool, which reads its secret from standard input."""
        tool = self._tool("keystore", "elasticsearch-keystore", "keystore-cli")
        try:
            self._account.run([*tool, *arguments], self._distribution.home, self._env, text=secret)
        except subprocess.CalledProcessError as failed:
            raise EmbeddedServerFailed(f"{self.title} keystore: {failed.stderr.strip()}") from None

    def _command(self) -> Command:
        """Its working directory must be the distribution's root."""
        argv, env = self._tool("server", "elasticsearch", "server-cli"), self._env
        distribution, java = self._found
        if distribution.major >= 9:
            launcher = distribution.home / "lib" / "tools" / "server-launcher"
            argv = [java.program, "-Xms4m", "-Xmx64m", *QUICK_START, f"{MARK}{self.folder}", "-cp", f"{launcher}/*"]
            argv.append("org.elasticsearch.server.launcher.ServerLauncher")
            env |= {
                "ES_HOME": str(distribution.home),
                "ES_PATH_CONF": str(self._config),
                "ES_DISTRIBUTION_TYPE": "tar",
                "ES_JAVA_TYPE": "bundled",
                "JAVA": java.program,
                "HOSTNAME": "embedded",
            }
        return Command(argv, distribution.home, env, signal.SIGTERM)

    @property
    def _env(self) -> dict[str, str]:
        return {**self._found[1].env, "ES_TMPDIR": str(self.folder / "tmp")}

    def _tool(self, name: str, script: str, libs: str) -> list[str]:
        distribution, java = self._found
        home = distribution.home
        return [
            java.program,
            "-Xms16m",
            "-Xmx64m",
            *QUICK_START,
            f"{MARK}{self.folder}",
            f"-Dcli.name={name}",
            f"-Dcli.script={home}/bin/{script}",
            f"-Dcli.libs=lib/tools/{libs}",
            f"-Des.path.home={home}",
            f"-Des.path.conf={self._config}",
            "-Des.distribution.type=tar",
            "-cp",
            f"{home}/lib/*:{home}/lib/cli-launcher/*",
            "org.elasticsearch.launcher.CliToolLauncher",
        ]
