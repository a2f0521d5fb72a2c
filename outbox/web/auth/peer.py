"""Owns what counts as one client for limits: its address, or the network that one IPv6 client has to itself. Pure."""

from __future__ import annotations

import ipaddress

from starlette.types import Scope

UNKNOWN = "-"


def plain(address: str) -> str:
    """An IPv4 address as it is written where a socket for both families says `::ffff:10.0.0.1`."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def peer(address: str | None) -> str:
    """The key of a client's limits. A client with IPv6 may choose any of the 2**64 addresses of its network."""
    try:
        found = ipaddress.ip_address(plain(address or ""))
    except ValueError:
        return UNKNOWN
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def of(scope: Scope) -> str:
    client = scope.get("client")
    return peer(client[0] if client else None)
