"""Owns an embedded search server, one node on loopback: its files, its configuration and its probe. It knows no index.

What differs between the products is in `elasticsearch.py` and `opensearch.py`.
"""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import ssl
import urllib.error
import urllib.request
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outbox.embedded.errors import DistributionUnusable, FolderUnreachable
from outbox.embedded.es_command import QUICK_START
from outbox.embedded.find_server import Distribution, find_supplies
from outbox.embedded.folders import default_data_dir
from outbox.embedded.java import Java
from outbox.embedded.process import MARK
from outbox.embedded.products import EmbeddedProduct
from outbox.embedded.progress import Report, to_stderr
from outbox.embedded.server import EmbeddedServer

LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%-25c{1.}] [%node_name]%marker %m%consoleException%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True)
class TlsFiles:
    """A PEM certificate and its key, for HTTPS."""

    certificate: Path
    key: Path


class EmbeddedSearch(EmbeddedServer):
    """One node on 127.0.0.1. `password` is that of `user`, who asks whether it is ready."""

    product: EmbeddedProduct
    user: str
    # 8 to 14 s on an idle machine, 30 s and more on a busy one.
    ready_seconds = 180.0
    port_taken_marks = ("BindHttpException", "Address already in use", "Failed to bind")

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        version: str | None = None,
        home: Path | None = None,
        heap: str = "512m",
        settings: Mapping[str, object] | None = None,
        jvm_options: Sequence[str] = QUICK_START,
        password: str | None = None,
        tls: TlsFiles | None = None,
        data_dir: Path | None = None,
        report: Report = to_stderr,
    ) -> None:
        super().__init__(folder, port=port)
        self.settings = dict(settings or {})
        self.heap = heap
        self.password = password
        self._jvm_options = jvm_options
        self._tls = tls
        self._version = version or self.product.name
        self._home = home
        self._shared = data_dir or default_data_dir()
        self._report = report
        self._node_name = f"embedded-{uuid.uuid4().hex[:8]}"
        self._found: tuple[Distribution, Java] | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def _find(self) -> tuple[Distribution, Java]:
        """The distribution and its Java; found or fetched at the first start only."""
        if self._found is None:
            distribution, java = find_supplies(self._shared, self._version, self._home, self._account, self._report)
            self._check_place(distribution)
            self._found = distribution, java
        return self._found

    @property
    def _distribution(self) -> Distribution:
        return self._find()[0]

    def _check_place(self, distribution: Distribution) -> None:
        if distribution.product != self.product:
            raise DistributionUnusable(f"{distribution.home} contains {distribution.product.title}")
        if not self._account.can_reach(distribution.home):
            raise FolderUnreachable(str(distribution.home))

    def _prepare(self) -> None:
        self._find()
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        for name in ("config", "data", "logs", "tmp"):
            self._account.give_folder(self.folder / name)
        config = self.folder / "config"
        self._account.give_file(config / f"{self.product.name}.yml", self._yaml())
        self._account.give_file(config / "log4j2.properties", LOGGING)
        self._prepare_more(config)

    def _yaml(self) -> str:
        # JSON values are YAML values, and json.dumps quotes everything that a path may contain.
        return "".join(f"{name}: {json.dumps(value)}\n" for name, value in self._all_settings().items())

    def _all_settings(self) -> dict[str, object]:
        return {
            "cluster.name": "outbox-embedded",
            "node.name": self._node_name,
            "discovery.type": "single-node",
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "path.data": str(self.folder / "data"),
            "path.logs": str(self.folder / "logs"),
            "cluster.routing.allocation.disk.threshold_enabled": False,
            **self._own_settings(),
            **self.settings,
        }

    @abstractmethod
    def _own_settings(self) -> dict[str, object]:
        """The settings that only this product knows."""

    def _java_options(self) -> list[str]:
        own = [f"-Xms{self.heap}", f"-Xmx{self.heap}", f"{MARK}{self.folder}", "-XX:+ExitOnOutOfMemoryError"]
        return [*own, f"-Djava.io.tmpdir={self.folder / 'tmp'}", *self._jvm_options]

    def _prepare_more(self, config: Path) -> None:
        """Write the files that only this product needs."""

    def _answers(self) -> bool:
        try:
            with self._opener().open(self._probe(), timeout=5) as reply:
                # By its name: another server may have taken the port.
                return bool(json.load(reply)["name"] == self._node_name)
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            # It may even be no HTTP: on loopback a probe of a free port may, by chance, connect to itself.
            return False

    def _probe(self) -> urllib.request.Request:
        headers = {}
        if self.password is not None:
            basic = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {basic}"
        return urllib.request.Request(self.url, headers=headers)  # noqa: S310

    def _opener(self) -> urllib.request.OpenerDirector:
        """Ignores proxies of the environment: a proxy would connect to 127.0.0.1 on its own machine."""
        direct = urllib.request.ProxyHandler({})
        return urllib.request.build_opener(direct, urllib.request.HTTPSHandler(context=self._trust()))

    def _trust(self) -> ssl.SSLContext | None:
        """The probe only checks that our own process answers; clients verify the certificate themselves."""
        if self._tls is None:
            return None
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
