"""What `outbox doctor` says about logins that leave this machine in clear. It opens no connection."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from outbox.ports import Finding, Level

NAME: Final = "transport"
ENCRYPTED: Final = ("require", "verify-ca", "verify-full")


class LoginAddresses(NamedTuple):
    """Where the settings send logins to; `sslmode` is that of the connection string."""

    search: Sequence[str]
    search_login: bool
    database_hosts: Sequence[str]
    sslmode: str


def transport(settings: LoginAddresses) -> Iterator[Finding]:
    """Warnings: a private network may be what guards them, and this cannot see that."""
    plain = [url for url in settings.search if url.startswith("http:") and is_elsewhere(urlsplit(url).hostname or "")]
    if plain and settings.search_login:
        detail = f"the login of the search server goes in clear to {', '.join(plain)}"
        yield Finding(NAME, Level.WARN, detail, "Use https in ELASTIC_URL (docs/security.md, TLS).")
    hosts = [host for host in settings.database_hosts if is_elsewhere(host)]
    if hosts and settings.sslmode not in ENCRYPTED:
        detail = f"sslmode={settings.sslmode} lets PostgreSQL at {', '.join(hosts)} answer without TLS"
        remedy = "Add sslmode=verify-full and sslrootcert to DATABASE_URL (docs/security.md, TLS)."
        yield Finding(NAME, Level.WARN, detail, remedy)


def is_elsewhere(host: str) -> bool:
    """Not this machine: a socket's folder, a loopback name or address."""
    if not host or host.startswith("/") or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True
