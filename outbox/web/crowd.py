"""Owns how many requests may be under way: of all clients, of one, and of exports. Health checks are outside of it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from outbox.web import refusals
from outbox.web.auth import peer
from outbox.web.problems import Refused

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
        client = peer.of(scope)
        if refused := self._refused(kind, client):
            await refusals.answer(Request(scope), refused)(scope, receive, send)
            return
        keys = [(kind, ""), (kind, client)]
        self.under_way.update(keys)
        try:
            await self._app(scope, receive, send)
        finally:
            self.under_way.subtract(keys)
            self.under_way += Counter()  # forgets who has none left

    def _refused(self, kind: str, client: str) -> Refused | None:
        most, most_of_a_peer = (
            (MOST_EXPORTS, MOST_EXPORTS_OF_A_PEER) if kind == "export" else (MOST_REQUESTS, MOST_OF_A_PEER)
        )
        if self.under_way[kind, client] >= most_of_a_peer:
            told = f"{most_of_a_peer} {kind}s of this address are under way; wait for one to end."
            return Refused(429, told, headers={"retry-after": "1"})
        if self.under_way[kind, ""] >= most:
            return Refused(503, "Too many requests are under way; try again.", headers={"retry-after": "5"})
        return None
