"""Serves the daemon's three pages, /metrics, /healthz and /readyz, on its own port; judges nothing (see telemetry).

A small server: few connections, no patience with slow clients.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from outbox.errors import CannotListen
from outbox.telemetry.beats import Beats
from outbox.telemetry.debounce import ReadyCheck

# A probe is answered before these are imported: 0.04 s of CPU, beside 0.24 s until the pages listen.
if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from outbox.telemetry.health import Health

MOST_CONNECTIONS: Final = 8  # one thread each; a newer one ends the oldest, so that silent clients starve no probe
READ_SECONDS: Final = 5.0  # between two bytes
WHOLE_SECONDS: Final = 15.0  # from accept to the last byte: a byte now and then does not hold a thread for ever


class HealthPage(NamedTuple):
    status: int
    content_type: str
    body: bytes


Pages = Mapping[str, Callable[[str], HealthPage]]  # path -> page made for an Accept header
TEXT: Final = "text/plain; charset=utf-8"


class _Handler(BaseHTTPRequestHandler):
    timeout = READ_SECONDS
    protocol_version = "HTTP/1.1"
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"
    server: "PageServer"

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command not in ("GET", "HEAD"):
            self._reply(HealthPage(405, TEXT, b"405 Only GET and HEAD\n"), {"Allow": "GET, HEAD"})
            return False
        return True

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self._reply(HealthPage(404, TEXT, b"404 Not found\n"))
            return
        try:
            made = page(self.headers.get("Accept", ""))
        except Exception:  # the reason is for the log of whoever made the page, not for an unauthenticated client
            made = HealthPage(500, TEXT, b"500 This page could not be made\n")
        self._reply(made)

    do_HEAD = do_GET  # noqa: N815

    def _reply(self, page: HealthPage, more: Mapping[str, str] | None = None) -> None:
        """One request per connection: probes and scrapes come seconds apart, and an idle one would hold a thread."""
        self.close_connection = True
        self.send_response(page.status)
        headers = {
            "Content-Type": page.content_type,
            "Content-Length": str(len(page.body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
            **(more or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def version_string(self) -> str:
        return "outbox"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """A line per probe would fill the log."""


class PageServer(ThreadingHTTPServer):
    """Listens from the moment it is made; `close` returns when the port is free again."""

    request_queue_size = 64
    allow_reuse_port = False

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        self.pages = pages
        self._open: dict[socket.socket, float] = {}  # since when, the oldest first
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family, _, _, _, address = found[0]
            super().__init__(address, _Handler)  # type: ignore[arg-type]
        except OSError as error:
            raise CannotListen(f"{host}:{port}: {error.strerror or error}") from error
        self._thread = threading.Thread(target=self.serve_forever, name=f"http-{port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join(5)
        self.server_close()
        for request in list(self._open):
            _cut(request)

    def server_bind(self) -> None:
        """HTTPServer's own resolves its name in DNS, which can take seconds and is never used."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called after each connection and twice a second: ends the oldest of too many, and what has taken too long."""
        connections = list(self._open.items())
        late, surplus = time.monotonic() - WHOLE_SECONDS, len(connections) - MOST_CONNECTIONS
        for place, (request, since) in enumerate(connections):
            if place < surplus or since < late:
                _cut(request)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing of ours is wrong when a client leaves."""


def _cut(request: socket.socket) -> None:
    with suppress(OSError):  # it has gone by itself
        request.shutdown(socket.SHUT_RDWR)


JSON: Final = "application/json"


@dataclass(slots=True)
class HealthState:
    """What the pages show: at first only that a daemon starts, and everything from `complete` on."""

    beats: Beats
    health: "Health | None" = None
    registry: "CollectorRegistry | None" = None
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def complete(self, registry: "CollectorRegistry", health: "Health") -> None:
        self.registry, self.health = registry, health

    def alive(self) -> bool:
        return self.health.alive() if self.health else self.beats.alive()

    def line(self) -> str:
        return self.health.line() if self.health else "waiting for PostgreSQL: loading modules"


def start(host: str, metrics_port: int, http_port: int | None, shown: HealthState) -> list[PageServer]:
    """One server per port; 0 is off. A port that cannot be opened raises CannotListen before anything is claimed."""
    probes: dict[str, Callable[[str], HealthPage]] = {
        "/healthz": lambda _: healthz(shown),
        "/readyz": lambda _: readyz(shown),
    }
    wanted: dict[int, Mapping[str, Callable[[str], HealthPage]]] = {}
    if http_port:
        wanted[http_port] = probes
    if metrics_port:
        wanted[metrics_port] = {**probes, "/metrics": lambda accept: metrics(shown, accept)}
    servers: list[PageServer] = []
    try:
        for port, pages in wanted.items():
            servers.append(PageServer(host, port, pages))
    except BaseException:
        stop(servers)
        raise
    return servers


def stop(servers: list[PageServer]) -> None:
    for server in servers:
        server.close()


def metrics(shown: HealthState, accept: str) -> HealthPage:
    if shown.registry is None:
        return HealthPage(503, TEXT, b"503 The daemon is starting\n")
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  (who made the registry has imported it)

    encode, content_type = choose_encoder(accept)
    return HealthPage(200, content_type, encode(shown.registry))


def healthz(shown: HealthState) -> HealthPage:
    alive = shown.alive()
    body = {"status": "ok" if alive else "stalled", "loops": shown.beats.report()}
    return HealthPage(200 if alive else 503, JSON, orjson.dumps(body) + b"\n")


def readyz(shown: HealthState) -> HealthPage:
    if shown.health is None:
        starting = ReadyCheck(False, shown.since, "starting: loading modules, not connected yet")
        body = {"status": "not_ready", "checks": {"start": starting.as_json()}}
    else:
        body = shown.health.readiness().as_json()
    return HealthPage(
        503 if body["status"] == "not_ready" else 200, JSON, orjson.dumps(body, option=orjson.OPT_INDENT_2) + b"\n"
    )
