"""Owns an embedded search server, one node on loopback: its files, its configuration and its probe. It knows no index.

What differs between the products is in `elasticsearch.py` and `opensearch.py`.
"""

from __future__ import annotations

import json
import ssl
import uuid
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import make_headers

from outbox.embedded.errors import DistributionUnusable, FolderUnreachable
from outbox.embedded.java import Java
from outbox.embedded.java_server import JavaOptions, JavaServer
from outbox.embedded.products import EmbeddedProduct
from outbox.embedded.supplies import Distribution, find_supplies


@dataclass(frozen=True)
class TlsFiles:
    """A PEM certificate and its key, for HTTPS."""

    certificate: Path
    key: Path


class EmbeddedSearch(JavaServer):
    """One node on 127.0.0.1. `password` is that of `user`, who asks whether it is ready."""

    product: EmbeddedProduct
    user: str
    folders = ("config", "data", "logs", "tmp")
    log_pattern = "[%d{ISO8601}][%-5p][%-25c{1.}] [%node_name]%marker %m%consoleException%n"

    def __init__(
        self,
        folder: Path,
        *,
        version: str | None = None,
        home: Path | None = None,
        tls: TlsFiles | None = None,
        **options: Unpack[JavaOptions],
    ) -> None:
        super().__init__(folder, **options)
        self._tls = tls
        self._version = version or self.product.name
        self._home = home
        self._node_name = f"embedded-{uuid.uuid4().hex[:8]}"

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def _find(self) -> tuple[Distribution, Java]:
        distribution, java = find_supplies(self._shared, self._version, self._home, self._account, self._report)
        if distribution.product != self.product:
            raise DistributionUnusable(f"{distribution.home} contains {distribution.product.title}")
        if not self._account.can_reach(distribution.home):
            raise FolderUnreachable(str(distribution.home))
        return distribution, java

    @property
    def _distribution(self) -> Distribution:
        found: Distribution = self._found[0]
        return found

    def _files(self) -> dict[str, str]:
        # JSON values are YAML values, and json.dumps quotes everything that a path may contain.
        lines = (f"{name}: {json.dumps(value)}\n" for name, value in self._all_settings().items())
        return {f"{self.product.name}.yml": "".join(lines)}

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

    def _java_options(self, heap: str) -> list[str]:
        return [f"-Xms{heap}", *super()._java_options(heap)]

    def _answers(self) -> bool:
        try:
            # By its name: another server may have taken the port.
            return bool(self._get("/").json()["name"] == self._node_name)
        except (OSError, HTTPError, ValueError, KeyError, TypeError):
            # It may even be no HTTP: on loopback a probe of a free port may, by chance, connect to itself.
            return False

    def _get(self, path: str) -> urllib3.BaseHTTPResponse:
        """urllib3 ignores proxies of the environment: a proxy would connect to 127.0.0.1 on its own machine."""
        login = make_headers(basic_auth=f"{self.user}:{self.password}") if self.password is not None else {}
        with urllib3.PoolManager(ssl_context=self._trust(), retries=False, timeout=5.0) as pool:
            return pool.request("GET", self.url + path, headers=login)

    def _trust(self) -> ssl.SSLContext | None:
        """Only our own process has this certificate; clients check its authority and its name themselves."""
        if self._tls is None:
            return None
        context = ssl.create_default_context(cafile=str(self._tls.certificate))
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context
