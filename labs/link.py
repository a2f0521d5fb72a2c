"""One connection through the proxy: two pumps that follow the current rules."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

from labs.traffic import METHODS, TOO_LARGE, Fault, Rules

CHUNK = 65_536
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: close sends RST, like a machine that crashed


class ProxiedConnection:
    """One connection: two pumps, and what is known of the requests whose replies come."""

    def __init__(self, rules: Rules, client: socket.socket, server: socket.socket) -> None:
        self._rules = rules
        self._client = client
        self._server = server
        self._lose_next = False
        self._fresh_request = True
        self._broken = False
        self._sending = {client: threading.Lock(), server: threading.Lock()}
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
        """If one side breaks, the other is broken too: its client would wait forever for a reply."""
        try:
            pump()
        except OSError:
            self.reset()

    def _read(self, side: socket.socket) -> bytes:
        """The socket still returns what came before; a broken link passes none of it."""
        data = side.recv(CHUNK)
        return b"" if self._broken else data

    def _requests(self) -> None:
        rules = self._rules
        while data := self._read(self._client):
            fault = rules.fault
            if fault.hold and fault.hold in data:
                rules.counts["held"] += 1
                rules.wait_for_release()
            rules.wait_while_stalled()
            if rules.refuses(data):
                rules.counts["refused_bodies"] += 1
                self._client.sendall(TOO_LARGE)
                self.reset()
                return
            self._lose_next = self._lose_next or rules.loses(data)
            self._fresh_request = True
            # Clients wait for a reply before the next request: a request starts where a read starts.
            rules.counts["requests"] += data.startswith(METHODS)
            rules.counts["bytes_up"] += len(data)
            if rules.tap is not None:
                rules.tap(id(self), data)
            self._send(self._server, data)
        self._finish(self._client, self._server)

    def _replies(self) -> None:
        rules = self._rules
        while data := self._read(self._server):
            rules.wait_while_stalled()
            if self._lose_next:
                rules.counts["replies_lost"] += 1
                self.reset()
                return
            self._pace(rules.fault, len(data))
            rules.counts["bytes_down"] += len(data)
            self._send(self._client, data)
        self._finish(self._server, self._client)

    def _send(self, side: socket.socket, data: bytes) -> None:
        """The kernel reports a reset once, to the first that asks: the pump that reads from this side meets a plain end
        then, so it is broken before that pump may judge it."""
        with self._sending[side]:
            try:
                side.sendall(data)
            except OSError:
                self.reset()
                raise

    def _finish(self, ended: socket.socket, other: socket.socket) -> None:
        with self._sending[ended]:
            whole = not self._broken
        if whole:
            other.shutdown(socket.SHUT_WR)

    def _pace(self, fault: Fault, size: int) -> None:
        if fault.delay_seconds and self._fresh_request:
            self._rules.counts["delayed"] += 1
            time.sleep(fault.delay_seconds)
        self._fresh_request = False
        if fault.bytes_a_second:
            time.sleep(size / fault.bytes_a_second)
