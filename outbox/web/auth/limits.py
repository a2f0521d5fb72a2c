"""Owns how often one client may do costly things, and what counts as one client. Token buckets in memory."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

_MOST_KEYS = 10_000  # a flood of addresses forgets the oldest instead of growing


@dataclass(frozen=True, slots=True)
class Allowance:
    """`burst` at once, refilled over a minute."""

    burst: int


GUESS = Allowance(10)  # wrong tokens, at the login and as bearer alike
ACT = Allowance(120)
EXPORT = Allowance(20)


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


def plain_address(address: str) -> str:
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
        found = ipaddress.ip_address(plain_address(address or ""))
    except ValueError:
        return UNKNOWN
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def peer_of(scope: Scope) -> str:
    client = scope.get("client")
    return peer(client[0] if client else None)
