"""Owns a TCP proxy that can be cut, stalled, slowed, made to lose replies or to deliver late; it parses no protocol."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

CHUNK = 65_536
LENGTH = re.compile(rb"(?:PUT|POST) \S*/_bulk\S* HTTP.*?\r\ncontent-length: (\d+)", re.IGNORECASE | re.DOTALL)
TOO_LARGE = b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
METHODS = (b"POST ", b"GET ", b"PUT ", b"HEAD ", b"DELETE ")
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: close sends RST, as a broken machine would


@dataclass
class Fault:
    """What the proxy does to traffic now; the default lets everything pass."""

    stalled: bool = False  # bytes are taken and kept, in both directions, until healed
    delay_seconds: float = 0.0  # before the first bytes of each reply
    bytes_a_second: float = 0.0  # of a reply; 0 = no limit
    lose: bytes = b""  # replies to requests that contain this are taken from the server and thrown away
    lose_share: float = 1.0
    lose_most: float = float("inf")  # so many in all
    most_body_bytes: int = 0  # a bulk request that says it is larger gets 413, as from a gateway; 0 = no limit
    hold: bytes = b""  # requests that contain this are put aside


@dataclass
class Proxy:
    """`with Proxy(host, port) as proxy: connect to proxy.port`. Every change of mode takes effect at once."""

    upstream_host: str
    upstream_port: int
    name: str = "proxy"
    seed: int = 0
    fault: Fault = field(default_factory=Fault)
    counts: Counter[str] = field(default_factory=Counter)
    port: int = 0
    _listener: socket.socket | None = None
    _links: set[_Link] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _open: bool = True
    _released: bool = True
    _ended: bool = False
    _dice: random.Random = field(default_factory=random.Random)

    @classmethod
    def to(cls, url: str, name: str = "proxy", seed: int = 0) -> Self:
        parts = urlsplit(url)
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, name, seed)

    def url(self, original: str) -> str:
        """The same address, through this proxy."""
        parts = urlsplit(original)
        login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return parts._replace(netloc=f"{login}127.0.0.1:{self.port}").geturl()

    def start(self) -> Self:
        self._dice = random.Random(self.seed)
        self._bind()
        self._listen()
        threading.Thread(target=self._accept, name=f"{self.name}-accept", daemon=True).start()
        return self

    def stop(self) -> None:
        self._ended = True
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
        """Break every connection and refuse new ones, as a server that is not there."""
        self._open = False
        assert self._listener is not None
        # Still bound but no longer listening (Linux): the port stays ours, and whoever connects is refused.
        self._listener.shutdown(socket.SHUT_RDWR)
        self.drop()

    def drop(self) -> None:
        """Break the connections that are there; new ones pass."""
        for link in list(self._links):
            self.counts["dropped"] += 1
            link.reset()

    def stall(self) -> None:
        """Connections stay open and nothing moves, as a hung machine or a lost route."""
        self._become(Fault(stalled=True))

    def slow(self, delay_seconds: float, bytes_a_second: float = 0.0) -> None:
        self._become(Fault(delay_seconds=delay_seconds, bytes_a_second=bytes_a_second))

    def lose_replies(self, to: bytes, share: float = 1.0, most: float = float("inf")) -> None:
        """The server does what it was asked; the answer never arrives and the connection breaks."""
        self.counts["replies_lost"] = 0
        self._become(Fault(lose=to, lose_share=share, lose_most=most))

    def refuse_bodies_over(self, most_bytes: int) -> None:
        self._become(Fault(most_body_bytes=most_bytes))

    def hold(self, requests: bytes) -> None:
        """Such requests are put aside until `release`; what else comes, and what comes after `let_pass`, passes."""
        self._released = False
        self._become(Fault(hold=requests))

    def let_pass(self) -> None:
        self._become(Fault())

    def release(self) -> None:
        """Deliver what was put aside, although its sender may have given up or died: a network may do that."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def heal(self) -> None:
        self._become(Fault())
        self.release()
        if not self._open and not self._ended:
            self._listen()
            self._open = True

    def _become(self, fault: Fault) -> None:
        with self._changed:
            self.fault = fault
            self._changed.notify_all()

    # Traffic

    def _bind(self) -> None:
        """To a port by its number: one that the kernel chose itself would be given back by `cut`."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
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
                time.sleep(0.02)  # cut: nobody listens for a while
                continue
            self.counts["connections"] += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((self.upstream_host, self.upstream_port), timeout=5)
        except OSError:
            self.counts["refused"] += 1
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
            return
        server.settimeout(None)
        link = _Link(self, client, server)
        self._links.add(link)
        if not self._open:
            link.reset()  # accepted in the moment of the cut
        link.run()
        self._links.discard(link)

    def wait_while_stalled(self) -> None:
        with self._changed:
            while self.fault.stalled and not self._ended:
                self._changed.wait(0.5)

    def wait_for_release(self) -> None:
        with self._changed:
            while not self._released and not self._ended:
                self._changed.wait(0.5)

    def loses(self, request: bytes) -> bool:
        fault = self.fault
        if not fault.lose or fault.lose not in request or self.counts["replies_lost"] >= fault.lose_most:
            return False
        return self._dice.random() < fault.lose_share

    def refuses(self, request: bytes) -> bool:
        most = self.fault.most_body_bytes
        found = LENGTH.match(request[:2_000]) if most else None
        return found is not None and int(found[1]) > most


class _Link:
    """One connection: two pumps, and what the requests said about the replies."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._lose_next = False
        self._fresh_request = True
        self._broken = False
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        forward = threading.Thread(target=self._guarded, args=(self._requests,), daemon=True)
        forward.start()
        self._guarded(self._replies)
        forward.join()
        for side in (self._client, self._server):
            side.close()

    def reset(self) -> None:
        """End of reading wakes the pumps without a FIN; `run` then closes, which sends RST."""
        self._broken = True
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                side.shutdown(socket.SHUT_RD)

    def _guarded(self, pump: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            pump()

    def _requests(self) -> None:
        proxy = self._proxy
        while data := self._client.recv(CHUNK):
            fault = proxy.fault
            if fault.hold and fault.hold in data:
                proxy.counts["held"] += 1
                proxy.wait_for_release()
            proxy.wait_while_stalled()
            if proxy.refuses(data):
                proxy.counts["refused_bodies"] += 1
                self._client.sendall(TOO_LARGE)
                self.reset()
                return
            self._lose_next = self._lose_next or proxy.loses(data)
            self._fresh_request = True
            # Nobody sends the next request before the answer to this one: a request starts where a read does.
            proxy.counts["requests"] += data.startswith(METHODS)
            proxy.counts["bytes_up"] += len(data)
            self._server.sendall(data)
        self._finish(self._server)

    def _replies(self) -> None:
        proxy = self._proxy
        while data := self._server.recv(CHUNK):
            proxy.wait_while_stalled()
            if self._lose_next:
                proxy.counts["replies_lost"] += 1
                self.reset()
                return
            self._pace(proxy.fault, len(data))
            proxy.counts["bytes_down"] += len(data)
            self._client.sendall(data)
        self._finish(self._client)

    def _finish(self, other: socket.socket) -> None:
        if not self._broken:
            other.shutdown(socket.SHUT_WR)

    def _pace(self, fault: Fault, size: int) -> None:
        if fault.delay_seconds and self._fresh_request:
            self._proxy.counts["delayed"] += 1
            time.sleep(fault.delay_seconds)
        self._fresh_request = False
        if fault.bytes_a_second:
            time.sleep(size / fault.bytes_a_second)
