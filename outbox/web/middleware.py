"""Around every request of the console: security headers, HEAD without a body, how many may be under way at once."""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outbox.web import problems
from outbox.web.auth import limits
from outbox.web.problems import RefusedRequest

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
        client = limits.peer_of(scope)
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
