"""Describes an embedded Elasticsearch: its settings, its security, its command. `search.py` runs it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from outbox.embedded.errors import EmbeddedServerFailed, FolderNotAllowed
from outbox.embedded.es_command import keystore_command, server_command
from outbox.embedded.find_server import Distribution
from outbox.embedded.process import Command
from outbox.embedded.products import ELASTICSEARCH
from outbox.embedded.search import EmbeddedSearch


class EmbeddedElasticsearch(EmbeddedSearch):
    """With `password`, security is on and the user is `elastic`."""

    product = ELASTICSEARCH
    title = ELASTICSEARCH.title
    user = "elastic"

    def _check_place(self, distribution: Distribution) -> None:
        super()._check_place(distribution)
        temporary = Path(tempfile.gettempdir()).resolve()
        for place in (self.folder, distribution.home):
            if distribution.major >= 9 and place.is_relative_to(temporary):
                raise FolderNotAllowed(str(place))

    def _own_settings(self) -> dict[str, object]:
        ml = {"xpack.ml.enabled": False} if self._distribution.has_module("x-pack-ml") else {}
        return {"xpack.security.enabled": self.password is not None, **ml, **self._tls_settings()}

    def _tls_settings(self) -> dict[str, object]:
        if self._tls is None:
            return {}
        prefix = "xpack.security.http.ssl"
        return {f"{prefix}.enabled": True, f"{prefix}.certificate": "http.crt", f"{prefix}.key": "http.key"}

    def _prepare_more(self, config: Path) -> None:
        self._account.give_file(config / "jvm.options", "\n".join(self._java_options()) + "\n")
        if self._tls is not None:
            self._account.give_file(config / "http.crt", self._tls.certificate.read_text())
            self._account.give_file(config / "http.key", self._tls.key.read_text())
        if self.password is not None and not (config / "elasticsearch.keystore").exists():
            self._keystore("create")
            self._keystore("add", "--stdin", "bootstrap.password", secret=self.password)

    def _keystore(self, *arguments: str, secret: str = "") -> None:
        command = keystore_command(*self._find(), self.folder, *arguments)
        try:
            self._account.run(command.argv, command.cwd, command.env, text=secret)
        except subprocess.CalledProcessError as failed:
            raise EmbeddedServerFailed(f"{self.title} keystore: {failed.stderr.strip()}") from None

    def _command(self) -> Command:
        return server_command(*self._find(), self.folder)
