"""The console's server: a socket of our own, limits of connections and requests per client, headers. Knows no page.

uvicorn counts connections of all clients together, answers 503 to health checks as well, and waits without end for a
head that does not come and for a client that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from outbox.errors import OutboxError
from outbox.web import auth, problems
from outbox.web.auth import peer, plain_address
from outbox.web.problems import RefusedRequest

MOST_CONNECTIONS: Final = 200
MOST_CONNECTIONS_OF_A_PEER: Final = 40  # a browser opens six
HEAD_SECONDS: Final = 10.0  # from the connection, or the answer before, to the last byte of the head
WRITE_SECONDS: Final = 30.0  # for a client to read 48 KB: slower ones are ended


class ConsoleConnection(H11Protocol):
    """A newer connection ends the oldest one that only waits, so that silent clients keep nobody out."""

    trusted: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread = 0
        self.peer = ""
        self.is_proxy = False  # its connections are its clients', who are distinguished by what it forwards
        self.since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self.client = (plain_address(self.client[0]), self.client[1])
            address = ipaddress.ip_address(self.client[0])
            self.is_proxy = any(address in network for network in self.trusted)
        self.peer = peer(self.client[0] if self.client else None)
        self._make_room()
        self._expect_head()

    def _make_room(self) -> None:
        """Of one client never more than its share. Where all are busy, `Crowd` answers those beyond the limit."""
        open_ones = [each for each in self.connections if isinstance(each, ConsoleConnection) and each is not self]
        here = [each for each in open_ones if not each.transport.is_closing()]
        of_peer = Counter(each.peer for each in here if not each.is_proxy)
        if of_peer[self.peer] >= MOST_CONNECTIONS_OF_A_PEER and not self.is_proxy:
            if not _end_oldest([each for each in here if each.peer == self.peer]):
                self.transport.abort()
        elif len(here) >= MOST_CONNECTIONS:
            fullest = max(of_peer.values(), default=0)
            _ = _end_oldest([each for each in here if of_peer[each.peer] == fullest]) or _end_oldest(here)

    @property
    def waits(self) -> bool:
        """Whether no request is under way here."""
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self.since = self.loop.time()
        self._watch()

    def _watch(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._within(HEAD_SECONDS, self._judge)

    def _judge(self) -> None:
        """A request under way has limits of its own. Closing waits for a client that does not read; abort does not."""
        reads = 0 < self.transport.get_write_buffer_size() < self._unread
        if (self.waits or self.transport.is_closing()) and not reads:
            self.transport.abort()
        else:
            self._watch()

    def on_response_complete(self) -> None:
        self._expect_head()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._within(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def _within(self, seconds: float, otherwise: Any) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, otherwise)


def _end_oldest(connections: Sequence[ConsoleConnection]) -> bool:
    """Sockets that wait for a head are cut, the one that has waited longest first; a request under way never is."""
    waiting = [each for each in connections if each.waits]
    if not waiting:
        return False
    min(waiting, key=lambda each: each.since).transport.abort()
    return True


def for_proxies(networks: Sequence[str]) -> type[ConsoleConnection]:
    """The protocol class of a console behind these proxies."""
    return type(
        "ConsoleConnection", (ConsoleConnection,), {"trusted": [ipaddress.ip_network(each) for each in networks]}
    )


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
            http=for_proxies(trusted_proxies),
            ws="none",
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
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


_HEAD: Final = "outbox.head"
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


class HeadAsGet:
    """HEAD is answered by the endpoint of GET, without its body: monitors and link checkers ask that way."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET", _HEAD: True}, receive, without_body)


def asked_by_head(scope: Scope) -> bool:
    return _HEAD in scope


HEALTH: Final = "/healthz"
EXPORT: Final = "/audit/export"
MOST_REQUESTS: Final = 150
MOST_OF_A_PEER: Final = 30  # of 40 threads that make answers
MOST_EXPORTS: Final = 8
MOST_EXPORTS_OF_A_PEER: Final = 2


class Crowd:
    """Refuses at once what is too much, instead of having it wait."""

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
        keys = [(kind, ""), (kind, client)]
        self.under_way.update(keys)
        try:
            await self._app(scope, receive, send)
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
