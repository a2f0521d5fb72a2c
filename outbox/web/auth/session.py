"""Owns the sessions behind the login cookie. They live in this process: a restart asks everyone to log in again."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

from outbox.web.auth.accounts import Person, TokenEntry, TokenFile, person

COOKIE = "outbox_session"
LIFETIME_SECONDS = 12 * 3600
MOST_SESSIONS = 10_000
MOST_OF_ONE = 100  # whoever logs in more often ends their own oldest, and nobody else's


class _Session(NamedTuple):
    name: str
    token_hash: str
    until: float


class Sessions:
    """A cookie is 256 random bits and says nothing by itself; what is kept here is its hash. So logging out ends the
    session for every copy of the cookie, and who reads the token file can make none."""

    def __init__(self, tokens: TokenFile, clock: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[bytes, _Session] = OrderedDict()  # the oldest first; all last equally long

    def issue(self, entry: TokenEntry) -> str:
        cookie, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            while self._open and (len(self._open) >= MOST_SESSIONS or next(iter(self._open.values())).until <= now):
                self._open.popitem(last=False)
            own = [key for key, session in self._open.items() if session.name == entry.name]
            for key in own[: max(0, len(own) - MOST_OF_ONE + 1)]:
                del self._open[key]
            self._open[_hashed(cookie)] = _Session(entry.name, entry.hash, now + LIFETIME_SECONDS)
        return cookie

    def person(self, cookie: str) -> Person | None:
        with self._lock:
            found = self._open.get(_hashed(cookie))
        if found is None or found.until <= self._clock():
            return None
        entry = self._tokens.named(found.name, found.token_hash)
        return person(entry) if entry else None

    def end(self, cookie: str) -> None:
        with self._lock:
            self._open.pop(_hashed(cookie), None)


def _hashed(cookie: str) -> bytes:
    """Looked up by its hash: the time that a lookup takes tells nothing about a cookie."""
    return hashlib.sha256(cookie.encode("utf-8", "replace")).digest()


def put_cookie(response: Response, value: str, *, secure: bool) -> None:
    response.set_cookie(
        COOKIE, value, max_age=LIFETIME_SECONDS, path="/", secure=secure, httponly=True, samesite="strict"
    )


def drop_cookie(response: Response) -> None:
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
