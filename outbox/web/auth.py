"""Access to the console: tokens and roles, sessions, limits per client, the gate that every request passes.

The gate decides from headers alone, before anything of a request is read; the role that an endpoint needs is declared
with it. Tokens are lines `name:role:sha256hex` of a file that is reread when it changes; no token is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Scope

from outbox.errors import ConfigProblem, ConfigurationError
from outbox.facts import AccessJudged, AccessVerdict, Announce, silent
from outbox.policy.audit import FOR
from outbox.web.problems import LoginNeeded, RefusedRequest


class Role(StrEnum):
    """Each may what the ones before it may. ANYONE marks endpoints that show nothing: login, static files, health."""

    ANYONE = "anyone"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


PEOPLE = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks. `by_token`: the name is proven; on loopback without tokens it is only said."""

    name: str
    role: Role
    by_token: bool = True

    def acting(self, said: str | None) -> str:
        """The name for the audit. A token may act for someone (a chat bot does); the token's name stays in front."""
        said = (said or "").strip()
        if not self.by_token:
            return said or self.name
        return self.name if said in ("", self.name) else f"{self.name}{FOR}{said}"

    @property
    def may_act(self) -> bool:
        return self.role.allows(Role.OPERATOR)


PREFIX = "obx_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_VARIABLE = "OUTBOX_CONSOLE_TOKENS_FILE"


class TokenEntry(NamedTuple):
    name: str
    role: Role
    hash: str


def new_token() -> str:
    """256 random bits: a slow hash would add nothing, and each request checks one."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def line_for(name: str, role: Role, token: str) -> str:
    """The line of the file. Raises ValueError for a name that could not be read back."""
    if not _NAME.fullmatch(name):
        raise ValueError("a name is 1 to 64 letters, digits, `.`, `_`, `@` or `-`, beginning with a letter or digit")
    return f"{name}:{role}:{hashed(token)}"


def parse(text: str) -> tuple[list[TokenEntry], list[str]]:
    """The good lines, and what is wrong with the others. Blank lines and `#` are passed over."""
    entries: dict[str, TokenEntry] = {}
    wrong: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not (said := line.strip()) or said.startswith("#"):
            continue
        name, role, digest = (*said.split(":"), "", "", "")[:3]
        fits = said.count(":") == 2 and _NAME.fullmatch(name) and role in PEOPLE and _HASH.fullmatch(digest)
        if not fits or name in entries:
            wrong.append(f"line {number} is not `name:role:sha256hex`" if not fits else f"line {number} repeats a name")
        else:
            entries[name] = TokenEntry(name, Role(role), digest)
    return list(entries.values()), wrong


class TokenFile:
    """The people of the file. While it cannot be read nobody may enter: a removed file must not open the console."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._entries: list[TokenEntry] = []
        self.problems: list[str] = []

    def check(self) -> None:
        """At start a wrong line is refused; later it is left out, so that a removal beside it still counts."""
        entries = self.entries()
        problems = self.problems or ([] if entries else ["holds no token"])
        if problems:
            remedy = "Make a line with `outbox console token NAME --role R`."
            raise ConfigurationError([ConfigProblem(_VARIABLE, what, remedy) for what in problems])

    def entries(self) -> list[TokenEntry]:
        """One `stat` a request (2 us)."""
        with self._lock:
            try:
                found = self._path.stat()
                stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
                if stamp != self._stamp:
                    self._entries, self.problems = parse(self._path.read_text("utf-8", "replace"))
                    self._stamp = stamp
            except OSError as error:
                self._entries, self._stamp = [], None
                self.problems = [f"cannot be read: {error.strerror or type(error).__name__}"]
            return self._entries

    def holder(self, token: str) -> TokenEntry | None:
        """Compares with every line, each in constant time."""
        asked = hashed(token)
        found = [entry for entry in self.entries() if hmac.compare_digest(entry.hash, asked)]
        return found[0] if found else None

    def named(self, name: str, digest: str) -> TokenEntry | None:
        """The same person with the same token as at login; a changed line ends its sessions."""
        return next((e for e in self.entries() if e.name == name and hmac.compare_digest(e.hash, digest)), None)


def person(entry: TokenEntry) -> Person:
    return Person(entry.name, entry.role)


_MOST_KEYS = 10_000  # a flood of addresses forgets the oldest instead of growing


@dataclass(frozen=True, slots=True)
class Allowance:
    """`burst` at once, refilled over a minute."""

    burst: int


GUESS = Allowance(10)  # wrong tokens, at the login and as bearer alike
ACT = Allowance(120)
EXPORT = Allowance(20)
LINE = Allowance(30)  # lines about access, per client: a flood of refusals is counted, not written


class RateLimits:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[tuple[Allowance, str], tuple[float, float]] = OrderedDict()

    def take(self, allowance: Allowance, key: str) -> float:
        """0 when it may go on, else the seconds to wait."""
        now = self._clock()
        with self._lock:
            left, at = self._left.pop((allowance, key), (float(allowance.burst), now))
            left = min(float(allowance.burst), left + (now - at) * allowance.burst / 60)
            wait = 0.0 if left >= 1 else (1 - left) * 60 / allowance.burst
            self._left[(allowance, key)] = (left if wait else left - 1, now)
            while len(self._left) > _MOST_KEYS:
                self._left.popitem(last=False)
        return wait

    def give_back(self, allowance: Allowance, key: str) -> None:
        """For what counts only where it turns out to be wrong: taken first, so that many at once count too."""
        with self._lock:
            if found := self._left.get((allowance, key)):
                self._left[(allowance, key)] = (found[0] + 1, found[1])


UNKNOWN = "-"


def peer(address: str | None) -> str:
    """The key of a client's limits. A client with IPv6 may choose any of the 2**64 addresses of its network; a socket
    for both families says `::ffff:10.0.0.1` for one with IPv4."""
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return UNKNOWN
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def peer_of(scope: Scope) -> str:
    client = scope.get("client")
    return peer(client[0] if client else None)


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


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


def loopback_host(host: str | None) -> bool:
    """Whether a Host header names this machine. A page of evil.example that resolves to 127.0.0.1 does not."""
    try:
        name = urlsplit(f"//{host or ''}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ipaddress.ip_address(name).is_loopback
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

    def __init__(self, tokens: TokenFile | None, pace: RateLimits | None = None, announce: Announce = silent) -> None:
        self.tokens = tokens
        self._announce = announce
        self._lines = RateLimits()
        self.sessions = Sessions(tokens) if tokens else None
        self.pace = pace or RateLimits()
        self._right: dict[tuple[str, str], None] = {}  # who has shown which token's hash; the oldest first

    def admit(self, request: Request, needed: Role, *, form: bool, acts: bool = False) -> Person | None:
        """Who asks, or RefusedRequest. None only where anyone may. `acts`: it leaves a trace, whatever its method."""
        if self.tokens is None and not loopback_host(request.headers.get("host")):
            # The address is the only lock then: a name that is not loopback may be a rebound one.
            self.tell(request, AccessVerdict.HOST)
            raise RefusedRequest(403, "Without tokens the console answers only to a loopback name such as localhost.")
        acts = acts or request.method not in SAFE_METHODS
        if acts and cross_site(request.headers, form=form):
            self.tell(request, AccessVerdict.CROSS_SITE)
            raise RefusedRequest(
                403, "This request came from another site's page; nothing was done. Send it from the console."
            )
        if needed is Role.ANYONE:
            return None
        found = self._who(request)
        if not found.role.allows(needed):
            self.tell(request, AccessVerdict.ROLE, found)
            raise RefusedRequest(403, f"This needs the role {needed}; {found.name} has the role {found.role}.")
        if acts:
            self.hold(request, ACT, found.name)
        return found

    def tell(self, request: Request, verdict: AccessVerdict, who: Person | None = None) -> None:
        client = peer_of(request.scope)
        told = self._lines.take(LINE, client) > 0
        name, role = (who.name, str(who.role)) if who else ("", "")
        self._announce(AccessJudged(verdict, client, name, role, told))

    def holder(self, request: Request, token: str, *, login: bool = False) -> TokenEntry | None:
        """Whose token this is. Wrong ones are slowed down by address, before they are compared; one that was right here
        before is not, or a neighbour's guesses would lock out all who share the address."""
        if self.tokens is None:
            return None
        client = peer_of(request.scope)
        known = (client, hashed(token)) in self._right
        if not known and (wait := self.pace.take(GUESS, client)):
            self.tell(request, AccessVerdict.TOO_OFTEN)
            raise _too_often(wait)
        entry = self.tokens.holder(token)
        if entry is None:
            self.tell(request, AccessVerdict.WRONG_TOKEN)
        elif login or not known:
            self.tell(request, AccessVerdict.LOGGED_IN, person(entry))
        if entry is not None and not known:
            self.pace.give_back(GUESS, client)
            if len(self._right) >= _MOST_RIGHT:
                del self._right[next(iter(self._right))]
            self._right[client, entry.hash] = None
        return entry

    def hold(self, request: Request, allowance: Allowance, name: str = "") -> None:
        """429 for whoever does this too often."""
        if wait := self.pace.take(allowance, f"{peer_of(request.scope)} {name}"):
            raise _too_often(wait)

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
