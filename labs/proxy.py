"""A TCP proxy that can be cut, stalled, slowed, made to lose replies or to deliver late. It parses no protocol."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from labs.link import RESET, ProxiedConnection
from labs.traffic import Fault, Rules
from outbox.embedded.process import free_port


class Proxy:
    """`with Proxy(host, port) as proxy: connect to proxy.port`. Every change of mode takes effect at once."""

    def __init__(
        self,
        upstream_host: str,
        upstream_port: int,
        name: str = "proxy",
        seed: int = 0,
        tap: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self._upstream = upstream_host, upstream_port
        self.name = name
        self.port = 0
        self._rules = Rules(seed, tap)
        self._listener: socket.socket | None = None
        self._links: set[ProxiedConnection] = set()
        self._open = True
        self._ended = False

    @property
    def counts(self) -> Counter[str]:
        """connections, requests, refused, dropped, delayed, held, replies_lost, refused_bodies, bytes_up and _down."""
        return self._rules.counts

    @classmethod
    def to(cls, url: str, name: str = "proxy", seed: int = 0, tap: Callable[[int, bytes], None] | None = None) -> Self:
        """`tap` sees what passes upstream, with the number of its connection."""
        parts = urlsplit(url)
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, name, seed, tap)

    def url(self, original: str) -> str:
        """The same address, through this proxy."""
        parts = urlsplit(original)
        login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return parts._replace(netloc=f"{login}127.0.0.1:{self.port}").geturl()

    def start(self) -> Self:
        self._bind()
        self._listen()
        threading.Thread(target=self._accept, name=f"{self.name}-accept", daemon=True).start()
        return self

    def stop(self) -> None:
        self._ended = True
        self._rules.end()
        self.heal()
        self.drop()
        if self._listener is not None:
            self._listener.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Faults

    def cut(self) -> None:
        """Break every connection and refuse new ones, like a server that is down."""
        self._open = False
        assert self._listener is not None
        # Still bound but no longer listening (Linux): the port stays ours, and new connections are refused.
        self._listener.shutdown(socket.SHUT_RDWR)
        self.drop()

    def drop(self) -> None:
        """Break the existing connections; new ones pass."""
        for link in list(self._links):
            self.counts["dropped"] += 1
            link.reset()

    def stall(self) -> None:
        """Connections stay open but nothing moves, like a hung machine or a lost route."""
        self._rules.become(Fault(stalled=True))

    def slow(self, delay_seconds: float, bytes_a_second: float = 0.0) -> None:
        self._rules.become(Fault(delay_seconds=delay_seconds, bytes_a_second=bytes_a_second))

    def lose_replies(self, to: bytes, share: float = 1.0, most: float = float("inf")) -> None:
        """The server handles the request, but its reply is dropped and the connection breaks."""
        self.counts["replies_lost"] = 0
        self._rules.become(Fault(lose=to, lose_share=share, lose_most=most))

    def refuse_bodies_over(self, most_bytes: int) -> None:
        self._rules.become(Fault(most_body_bytes=most_bytes))

    def hold(self, requests: bytes) -> None:
        """Requests that match are held until `release`. All others pass, and after `let_pass` new ones too."""
        self._rules.become(Fault(hold=requests))

    def let_pass(self) -> None:
        self._rules.become(Fault())

    def release(self) -> None:
        """Deliver the held requests, although their senders may have timed out or died, as a network may do."""
        self._rules.release()

    def heal(self) -> None:
        self._rules.become(Fault())
        self.release()
        if not self._open and not self._ended:
            self._listen()
            self._open = True

    # Traffic

    def _bind(self) -> None:
        """Binds to a port by its number: `cut` would lose a port that the kernel chose."""
        self.port = free_port()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))

    def _listen(self) -> None:
        assert self._listener is not None
        self._listener.listen(128)

    def _accept(self) -> None:
        while not self._ended:
            listener = self._listener
            try:
                assert listener is not None
                client, _ = listener.accept()
            except OSError:
                time.sleep(0.02)  # cut: not listening for a while
                continue
            self.counts["connections"] += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream, timeout=5)
        except OSError:
            self.counts["refused"] += 1
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
            return
        server.settimeout(None)
        link = ProxiedConnection(self._rules, client, server)
        self._links.add(link)
        if not self._open:
            link.reset()  # accepted at the moment of the cut
        link.run()
        self._links.discard(link)
