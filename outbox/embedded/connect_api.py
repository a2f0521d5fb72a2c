"""Speaks to the REST API of a Kafka Connect on this machine: connectors and their states. It starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import urllib3
from urllib3.util import make_headers

from outbox.embedded.errors import ConnectorRefused

# A connector validates its configuration by connecting to its database.
REPLY_SECONDS: Final = 60.0
USER: Final = "outbox"


@dataclass(frozen=True)
class ConnectApi:
    url: str
    password: str | None = None

    def put_connector(self, name: str, config: Mapping[str, str]) -> None:
        self.call("PUT", f"/connectors/{quote(name, safe='')}/config", dict(config))

    def delete_connector(self, name: str) -> None:
        self.call("DELETE", f"/connectors/{quote(name, safe='')}")

    def states(self, name: str) -> list[str]:
        """Of the connector and its tasks, such as RUNNING; empty while nothing is known of it."""
        try:
            found = self.call("GET", f"/connectors/{quote(name, safe='')}/status")
        except ConnectorRefused as unknown:
            if unknown.detail.startswith("404"):
                return []
            raise
        return [found["connector"]["state"], *(task["state"] for task in found["tasks"])]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Raises ConnectorRefused with Connect's own reason. urllib3 ignores proxies of the environment: a proxy would
        connect to 127.0.0.1 on its own machine."""
        login = make_headers(basic_auth=f"{USER}:{self.password}") if self.password is not None else {}
        with urllib3.PoolManager(retries=False, timeout=REPLY_SECONDS) as pool:
            reply = pool.request(method, self.url + path, json=body, headers=login)
        if reply.status >= 400:
            raise ConnectorRefused(f"{reply.status} {reply.data.decode(errors='replace')[:500]}")
        return reply.json() if reply.data else {}
