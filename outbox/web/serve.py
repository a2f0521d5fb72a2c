"""Runs the console on a socket of our own, so that a taken port is our error, and stops when told. Knows no page."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp

from outbox.errors import OutboxError
from outbox.web import connections


class CannotServe(OutboxError):
    """The console's port cannot be opened. Stop the program that uses it, or choose another with
    OUTBOX_CONSOLE_PORT (0 takes any free one)."""

    exit_code = 78


class _Server(uvicorn.Server):
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
            http=connections.for_proxies(trusted_proxies),
            ws="none",
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            timeout_keep_alive=10,
            timeout_graceful_shutdown=5,
            lifespan="off",
        )
        self._server = _Server(config)

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        on_ready()
        self._server.run(sockets=[self.socket])

    def stop(self) -> None:
        self._server.should_exit = True
