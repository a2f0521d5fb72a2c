"""The gate that every request passes before anything of it is read: host, person, site, role, rate.

It decides from headers alone; the role that an endpoint needs is declared with it.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import Request

from outbox.web.auth import limits as peer
from outbox.web.auth.accounts import Person, Role, TokenEntry, TokenFile, hashed, person
from outbox.web.auth.limits import ACT, GUESS, Allowance, RateLimits
from outbox.web.auth.session import COOKIE, Sessions
from outbox.web.problems import LoginNeeded, RefusedRequest

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


def loopback_host(host: str | None) -> bool:
    """Whether a Host header names this machine. A page of evil.example that resolves to 127.0.0.1 does not."""
    try:
        name = urlsplit(f"//{host}").hostname if host else None
    except ValueError:
        return False
    if not name:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def cross_site(headers: Mapping[str, str], *, form: bool) -> bool:
    """Whether an unsafe request was sent by another site's page.

    Browsers send Sec-Fetch-Site to HTTPS and localhost only, so Origin is the fallback for plain HTTP. Programs send
    neither: fine for JSON, which no page can send elsewhere unasked; not for a form, which any page can.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return True
    if origin is not None:
        return not same_origin(origin, headers.get("host"))
    return site is None and form


def same_origin(origin: str, host: str | None) -> bool:
    try:
        said, here = urlsplit(origin), urlsplit(f"//{host or ''}")
        port = said.port or _DEFAULT_PORTS.get(said.scheme)
        ours = here.port or _DEFAULT_PORTS.get(said.scheme)
        return bool(said.hostname) and (said.hostname, port) == (here.hostname, ours)
    except ValueError:
        return False


LOCAL_NAME = "local"
_MOST_RIGHT = 10_000


def _too_often(wait: float) -> RefusedRequest:
    told = f"Too many requests; try again in {math.ceil(wait)} s."
    return RefusedRequest(429, told, headers={"retry-after": str(math.ceil(wait))})


class AccessGate:
    """`tokens` None: only loopback listens (checked at start), and whoever can reach it may read and act."""

    def __init__(self, tokens: TokenFile | None, pace: RateLimits | None = None) -> None:
        self.tokens = tokens
        self.sessions = Sessions(tokens) if tokens else None
        self.pace = pace or RateLimits()
        self._right: dict[tuple[str, str], None] = {}  # who has shown which token's hash; the oldest first

    def admit(self, request: Request, needed: Role, *, form: bool, acts: bool = False) -> Person | None:
        """Who asks, or RefusedRequest. None only where anyone may. `acts`: it leaves a trace, whatever its method."""
        self._check_host(request)
        acts = acts or request.method not in SAFE_METHODS
        if acts and cross_site(request.headers, form=form):
            raise RefusedRequest(
                403, "This request came from another site's page; nothing was done. Send it from the console."
            )
        if needed is Role.ANYONE:
            return None
        found = self._who(request)
        if not found.role.allows(needed):
            raise RefusedRequest(403, f"This needs the role {needed}; {found.name} has the role {found.role}.")
        if acts:
            self.hold(request, ACT, found.name)
        return found

    def holder(self, request: Request, token: str) -> TokenEntry | None:
        """Whose token this is. Wrong ones are slowed down by address, before they are compared; one that was right here
        before is not, or a neighbour's guesses would lock out all who share the address."""
        if self.tokens is None:
            return None
        client = peer.peer_of(request.scope)
        known = (client, hashed(token)) in self._right
        if not known and (wait := self.pace.take(GUESS, client)):
            raise _too_often(wait)
        entry = self.tokens.holder(token)
        if entry is not None and not known:
            self.pace.give_back(GUESS, client)
            if len(self._right) >= _MOST_RIGHT:
                del self._right[next(iter(self._right))]
            self._right[client, entry.hash] = None
        return entry

    def hold(self, request: Request, allowance: Allowance, name: str = "") -> None:
        """429 for whoever does this too often."""
        if wait := self.pace.take(allowance, f"{peer.peer_of(request.scope)} {name}"):
            raise _too_often(wait)

    def _check_host(self, request: Request) -> None:
        """Without tokens the address is the only lock: a name that is not loopback may be a rebound one."""
        if self.tokens is None and not loopback_host(request.headers.get("host")):
            raise RefusedRequest(403, "Without tokens the console answers only to a loopback name such as localhost.")

    def _who(self, request: Request) -> Person:
        if self.tokens is None:
            return Person(LOCAL_NAME, Role.ADMIN, by_token=False)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme:
            entry = self.holder(request, token.strip()) if scheme.lower() == "bearer" else None
            if entry is None:
                raise LoginNeeded("This token is not known. Ask an administrator for one.")
            return person(entry)
        found = self.sessions.person(request.cookies.get(COOKIE, "")) if self.sessions else None
        if found is None:
            raise LoginNeeded("Log in, or send `Authorization: Bearer TOKEN`.")
        return found
