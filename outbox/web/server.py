"""A small HTTP server for a few read-only pages: few threads, no patience with slow clients. Knows no page itself."""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final, NamedTuple

from outbox.errors import CannotListen

MOST_CONNECTIONS: Final = 8  # one thread each; a newer one ends the oldest, so that silent clients starve no probe
READ_SECONDS: Final = 5.0  # between two bytes
WHOLE_SECONDS: Final = 15.0  # from accept to the last byte: a byte now and then does not hold a thread for ever


class Page(NamedTuple):
    status: int
    content_type: str
    body: bytes


Pages = Mapping[str, Callable[[str], Page]]  # path -> page made for an Accept header
TEXT: Final = "text/plain; charset=utf-8"


class _Handler(BaseHTTPRequestHandler):
    timeout = READ_SECONDS
    protocol_version = "HTTP/1.1"
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"
    server: "_Server"

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command not in ("GET", "HEAD"):
            self._reply(Page(405, TEXT, b"405 Only GET and HEAD\n"), {"Allow": "GET, HEAD"})
            return False
        return True

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self._reply(Page(404, TEXT, b"404 Not found\n"))
            return
        try:
            made = page(self.headers.get("Accept", ""))
        except Exception:  # the reason is for the log of whoever made the page, not for a stranger
            made = Page(500, TEXT, b"500 This page could not be made\n")
        self._reply(made)

    do_HEAD = do_GET  # noqa: N815

    def _reply(self, page: Page, more: Mapping[str, str] | None = None) -> None:
        """One request a connection: probes and scrapes come seconds apart, and an idle one would hold a thread."""
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
        """A line a probe would drown the log."""


class _Server(HTTPServer):
    request_queue_size = 64

    def __init__(self, family: int, address: Any, pages: Pages) -> None:
        self.address_family = family
        self.pages = pages
        self._pool = ThreadPoolExecutor(MOST_CONNECTIONS, thread_name_prefix="pages")
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """HTTPServer's own looks its name up in DNS, which can take seconds and is never used."""
        socket_server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        for oldest in self._make_room(request):
            _cut(oldest)
        self._pool.submit(self._answer, request, client_address)

    def _make_room(self, request: socket.socket) -> list[socket.socket]:
        with self._lock:
            full = len(self._open) >= MOST_CONNECTIONS
            ended = [min(self._open, key=self._open.__getitem__)] if full else []
            for oldest in ended:
                del self._open[oldest]
            self._open[request] = time.monotonic()
        return ended

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # a client that went away in the middle
            self.handle_error(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second by serve_forever: ends what has taken too long as a whole."""
        oldest = time.monotonic() - WHOLE_SECONDS
        with self._lock:
            late = [request for request, since in self._open.items() if since < oldest]
        for request in late:
            _cut(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing of ours is wrong when a client leaves."""

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            still_open = list(self._open)
        for request in still_open:
            _cut(request)
        self._pool.shutdown(wait=False, cancel_futures=True)


def socket_server_bind(server: HTTPServer) -> None:
    if server.address_family == socket.AF_INET6:
        server.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.socket.bind(server.server_address)
    server.server_address = server.socket.getsockname()


def _cut(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has gone by itself


class PageServer:
    """Listens from the moment it is made; `close` returns when the port is free again."""

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
                0
            ]
            self._server = _Server(family, address, pages)
        except OSError as error:
            raise CannotListen(f"{host}:{port}: {error.strerror or error}") from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"http-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()
