"""Owns the login cookie: signed with a key of this process, so a restart asks everyone to log in again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable

from starlette.responses import Response

from outbox.web.auth.roles import Person
from outbox.web.auth.tokens import Entry, TokenFile, person

COOKIE = "outbox_session"
LIFETIME_SECONDS = 12 * 3600


class Sessions:
    """The key is in memory only: whoever reads the token file's hashes can still make no cookie."""

    def __init__(self, tokens: TokenFile, clock: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def issue(self, entry: Entry) -> str:
        said = json.dumps([entry.name, entry.hash, int(self._clock()) + LIFETIME_SECONDS]).encode()
        body = base64.urlsafe_b64encode(said).decode()
        return f"{body}.{self._sign(body)}"

    def person(self, cookie: str) -> Person | None:
        body, _, signature = cookie.partition(".")
        if not hmac.compare_digest(self._sign(body).encode(), signature.encode("utf-8", "replace")):
            return None
        name, digest, until = json.loads(base64.urlsafe_b64decode(body))
        entry = self._tokens.named(name, digest) if until > self._clock() else None
        return person(entry) if entry else None

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def put_cookie(response: Response, value: str, *, secure: bool) -> None:
    response.set_cookie(
        COOKIE, value, max_age=LIFETIME_SECONDS, path="/", secure=secure, httponly=True, samesite="strict"
    )


def drop_cookie(response: Response) -> None:
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
