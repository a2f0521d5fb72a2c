"""Owns the console's connections: how many one client may have, and how long each may take. Knows no page.

uvicorn counts connections of all clients together, answers 503 to health checks as well, and waits without end for a
head that does not come and for a client that does not read.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from outbox.web.auth.peer import peer, plain

MOST_CONNECTIONS: Final = 200
MOST_OF_A_PEER: Final = 40  # a browser opens six
HEAD_SECONDS: Final = 10.0  # from the connection, or the answer before, to the last byte of the head
WRITE_SECONDS: Final = 30.0  # for a client to read 48 KB: slower ones are ended


class Connection(H11Protocol):
    """A newer connection ends the oldest one that only waits, so that silent clients keep nobody out."""

    trusted: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread = 0
        self.peer = ""
        self.is_proxy = False  # its connections are its clients', who are told apart by what it forwards
        self.since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self.client = (plain(self.client[0]), self.client[1])
            address = ipaddress.ip_address(self.client[0])
            self.is_proxy = any(address in network for network in self.trusted)
        self.peer = peer(self.client[0] if self.client else None)
        self._make_room()
        self._expect_head()

    def _make_room(self) -> None:
        """Of one client never more than its share. Where all are busy, `Crowd` answers those beyond the limit."""
        open_ones = [each for each in self.connections if isinstance(each, Connection) and each is not self]
        here = [each for each in open_ones if not each.transport.is_closing()]
        of_peer = Counter(each.peer for each in here if not each.is_proxy)
        if of_peer[self.peer] >= MOST_OF_A_PEER and not self.is_proxy:
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


def _end_oldest(connections: Sequence[Connection]) -> bool:
    """Sockets that wait for a head are cut, the one that has waited longest first; a request under way never is."""
    waiting = [each for each in connections if each.waits]
    if not waiting:
        return False
    min(waiting, key=lambda each: each.since).transport.abort()
    return True


def for_proxies(networks: Sequence[str]) -> type[Connection]:
    """The protocol class of a console behind these proxies."""
    return type("Connection", (Connection,), {"trusted": [ipaddress.ip_network(each) for each in networks]})
