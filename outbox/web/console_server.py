"""The console's server: a socket of our own, limits of requests per client, headers. Knows no page.

Connections are not counted here, and a head may take its time: on a hostile network a proxy limits both
(docs/security.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outbox.errors import OutboxError
from outbox.web import auth, problems
from outbox.web.problems import RefusedRequest


class CannotServe(OutboxError):
    """The console's port cannot be opened. Stop the program that uses it, or choose another with
    OUTBOX_CONSOLE_PORT (0 takes any free one)."""

    exit_code = 78


class _UvicornServer(uvicorn.Server):
    """Signals belong to the command that started us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """The open socket; raises CannotServe."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Head and body of an answer are two writes: with Nagle's waiting, every page took 40 ms more.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        raise CannotServe(f"{host}:{port}: {error.strerror or error}") from error
    return made


def address(made: socket.socket) -> str:
    host, port = made.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/ops/queue"


def in_both_families(networks: Sequence[str]) -> list[str]:
    """An IPv4 client of a socket for both families is `::ffff:10.0.0.1` there."""
    found = [ipaddress.ip_network(each) for each in networks]
    mapped = [f"::ffff:{each.network_address}/{each.prefixlen + 96}" for each in found if each.version == 4]
    return [*networks, *mapped]


class Console:
    """One server. `run` blocks; `stop` may be called from a signal handler or another thread. `trusted_proxies` are the
    only peers whose headers about the client are believed: of any other, the peer is who connected."""

    def __init__(self, app: ASGIApp, made: socket.socket, trusted_proxies: Sequence[str] = ()) -> None:
        self.socket = made
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            http="h11",
            ws="none",
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=in_both_families(trusted_proxies),
            timeout_keep_alive=10,
            timeout_graceful_shutdown=5,
            lifespan="off",
        )
        self._server = _UvicornServer(config)

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        on_ready()
        self._server.run(sockets=[self.socket])

    def stop(self) -> None:
        self._server.should_exit = True


POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


KEEP: Final = "public, max-age=31536000, immutable"


class SecurityHeaders:
    """Pages and API answers are kept nowhere; only static files may be, because their address names their version."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        kept = KEEP if scope["path"].startswith("/static/") else "no-store"

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", kept)
            await send(message)

        await self._app(scope, receive, with_headers)


HEALTH: Final = "/healthz"
EXPORT: Final = "/audit/export"
MOST_REQUESTS: Final = 150
MOST_OF_A_PEER: Final = 30  # of 40 threads that make answers
MOST_EXPORTS: Final = 8
MOST_EXPORTS_OF_A_PEER: Final = 2
WRITE_SECONDS: Final = 30.0  # for a client to read 48 KB: the request of a slower one is ended


class UnreadAnswer(Exception):
    """The client does not read what it asked for."""


class Crowd:
    """Refuses at once what is too much, instead of having it wait. Nobody keeps a place by not reading."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.under_way: Counter[tuple[str, str]] = Counter()  # by what it is and who asks; "" is everyone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == HEALTH:
            await self._app(scope, receive, send)
            return
        kind = "export" if scope["path"].endswith(EXPORT) else "request"
        client = auth.peer_of(scope)
        if refused := self._refused(kind, client):
            await problems.error_response(Request(scope), refused)(scope, receive, send)
            return

        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await send(message)
            except TimeoutError:
                raise UnreadAnswer from None

        keys = [(kind, ""), (kind, client)]
        self.under_way.update(keys)
        try:
            with contextlib.suppress(UnreadAnswer):  # the server closes a connection whose answer has no end
                await self._app(scope, receive, send_in_time)
        finally:
            self.under_way.subtract(keys)
            self.under_way += Counter()  # forgets who has none left

    def _refused(self, kind: str, client: str) -> RefusedRequest | None:
        most, most_of_a_peer = (
            (MOST_EXPORTS, MOST_EXPORTS_OF_A_PEER) if kind == "export" else (MOST_REQUESTS, MOST_OF_A_PEER)
        )
        if self.under_way[kind, client] >= most_of_a_peer:
            detail = f"{most_of_a_peer} {kind}s of this address are under way; wait for one to end."
            return RefusedRequest(429, detail, headers={"retry-after": "1"})
        if self.under_way[kind, ""] >= most:
            return RefusedRequest(503, "Too many requests are under way; try again.", headers={"retry-after": "5"})
        return None
