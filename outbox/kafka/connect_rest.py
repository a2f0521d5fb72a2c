"""Asks the REST interface of Kafka Connect about one connector: its configuration and its state. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import make_headers

from outbox.errors import DependencyDown, UsageError

TIMEOUT_SECONDS: Final = 10.0
LOGIN: Final = "KAFKA_CONNECT_USERNAME and KAFKA_CONNECT_PASSWORD, or KAFKA_CONNECT_PASSWORD_FILE"


class ConnectDown(DependencyDown):
    """Kafka Connect does not answer as it should. Check the address of its REST interface, usually port 8083."""


class KafkaConnect:
    def __init__(self, url: str, *, login: tuple[str, str] | None = None, ca_certs: Path | None = None) -> None:
        """`login`: user name and password; they are in no message."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("the address of Kafka Connect must be http://HOST:PORT or https://HOST:PORT")
        if parts.username or parts.password:
            raise UsageError(f"give the address of Kafka Connect without credentials; set {LOGIN}")
        self._url = url.rstrip("/")
        self._headers = make_headers(basic_auth=":".join(login)) if login else {}
        self._ca_certs = None if ca_certs is None else str(ca_certs)

    def configuration(self, name: str) -> Mapping[str, Any] | None:
        """None where there is no such connector."""
        return self._get(f"/connectors/{quote(name, safe='')}/config")

    def is_open(self) -> bool:
        """Whether it answers without a login."""
        return self._asked("/connectors", {}).status == HTTPStatus.OK

    def status(self, name: str) -> Mapping[str, Any] | None:
        return self._get(f"/connectors/{quote(name, safe='')}/status")

    def _get(self, path: str) -> dict[str, Any] | None:
        reply = self._asked(path, self._headers)
        if reply.status == HTTPStatus.NOT_FOUND:
            return None
        if reply.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise ConnectDown(f"{self._url} answered {reply.status}: {'correct' if self._headers else 'set'} {LOGIN}")
        if reply.status != HTTPStatus.OK:
            raise ConnectDown(f"{self._url} answered {reply.status}")
        try:
            answer = reply.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ConnectDown(f"{self._url} is not Kafka Connect")
        return answer

    def _asked(self, path: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """A redirect is not followed: the login is for this address only."""
        try:
            with urllib3.PoolManager(retries=False, ca_certs=self._ca_certs) as pool:
                return pool.request("GET", self._url + path, headers=headers, timeout=TIMEOUT_SECONDS)
        except HTTPError as error:
            raise ConnectDown(f"{type(error).__name__} at {self._url}") from error
