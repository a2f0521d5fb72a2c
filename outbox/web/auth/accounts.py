"""Owns the roles and the file of tokens, `name:role:sha256hex` per line, reread when it changes. Keeps no token."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from outbox.errors import ConfigProblem, ConfigurationError
from outbox.policy.audit import FOR


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
