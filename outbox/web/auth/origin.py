"""Decides whether a request may come from where it says it comes from: Host, Origin and Sec-Fetch-Site. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

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
