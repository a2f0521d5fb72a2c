"""Speaks to the REST API of a Kafka Connect on this machine: connectors and their states. It starts nothing."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from urllib3.util import make_headers

from outbox.embedded.errors import ConnectorRefused

# A connector validates its configuration by connecting to its database.
REPLY_SECONDS: Final = 60.0
USER: Final = "outbox"


@dataclass(frozen=True)
class ConnectApi:
    """One Kafka Connect, by the address of its API."""

    url: str
    password: str | None = None

    def put_connector(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change it. Raises ConnectorRefused with Connect's own reason."""
        try:
            self.call("PUT", f"/connectors/{quote(name, safe='')}/config", config)
        except urllib.error.HTTPError as refused:
            raise ConnectorRefused(f"{name}: {_reason(refused)}") from None

    def delete_connector(self, name: str) -> None:
        self.call("DELETE", f"/connectors/{quote(name, safe='')}")

    def states(self, name: str) -> list[str]:
        """Of the connector and its tasks, such as RUNNING; empty while nothing is known of it."""
        try:
            found = self.call("GET", f"/connectors/{quote(name, safe='')}/status")
        except urllib.error.HTTPError as unknown:
            if unknown.code == 404:
                return []
            raise
        return [found["connector"]["state"], *(task["state"] for task in found["tasks"])]

    def call(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Past the proxies of the environment: a proxy would connect to 127.0.0.1 on its own machine."""
        data = None if body is None else json.dumps(dict(body)).encode()
        login = make_headers(basic_auth=f"{USER}:{self.password}") if self.password is not None else {}
        headers = {"Content-Type": "application/json", **login}
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=REPLY_SECONDS) as reply:
            text = reply.read()
        return json.loads(text) if text else {}


def _reason(refused: urllib.error.HTTPError) -> str:
    text = refused.read().decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{refused.code} {text[:500]}"
