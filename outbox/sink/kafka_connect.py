"""Asks the REST interface of Kafka Connect about one connector: its configuration and its state. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from outbox.errors import DependencyDown, UsageError

TIMEOUT_SECONDS: Final = 10.0


class ConnectDown(DependencyDown):
    """Kafka Connect does not answer as it should. Check the address of its REST interface, usually port 8083."""


class KafkaConnect:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("the address of Kafka Connect must be http://HOST:PORT or https://HOST:PORT")
        if parts.username or parts.password:
            raise UsageError("give the address of Kafka Connect without credentials")
        self._url = url.rstrip("/")

    def configuration(self, name: str) -> Mapping[str, Any] | None:
        """None where there is no such connector."""
        return self._get(f"/connectors/{quote(name, safe='')}/config")

    def status(self, name: str) -> Mapping[str, Any] | None:
        return self._get(f"/connectors/{quote(name, safe='')}/status")

    def _get(self, path: str) -> dict[str, Any] | None:
        with urllib3.PoolManager(retries=False) as pool:
            try:
                reply = pool.request("GET", self._url + path, timeout=TIMEOUT_SECONDS)
            except HTTPError as error:
                raise ConnectDown(f"{type(error).__name__} at {self._url}") from error
        if reply.status == HTTPStatus.NOT_FOUND:
            return None
        if reply.status != HTTPStatus.OK:
            raise ConnectDown(f"{self._url} answered {reply.status}")
        try:
            answer = orjson.loads(reply.data)
        except orjson.JSONDecodeError as error:
            raise ConnectDown(f"{self._url} did not answer with JSON") from error
        if not isinstance(answer, dict):
            raise ConnectDown(f"{self._url} is not Kafka Connect")
        return answer
