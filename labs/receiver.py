"""A receiver of webhooks with a chosen reply. It keeps the messages and can check their signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """On its own loopback port. `answer` sets the status of every further reply."""

    def __init__(self) -> None:
        self._status = 204
        self.tries = 0
        self.taken: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status = receiver.receive({k.lower(): v for k, v in self.headers.items()}, body)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, status: int) -> None:
        self._status = status

    def receive(self, headers: dict[str, str], body: bytes) -> int:
        self.tries += 1
        if self._status < 300:
            self.taken.append((headers, body))
        return self._status

    def messages(self, secret: str) -> Iterator[tuple[dict[str, Any], bool]]:
        """Each message, and whether its signature is valid (Standard Webhooks)."""
        for headers, body in list(self.taken):
            yield json.loads(body), is_signed(secret, headers, body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}.".encode() + body
    right = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{right}" in headers.get("webhook-signature", "").split()
