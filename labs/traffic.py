"""The current rules for a proxy's traffic: stalled, slow, held, lost, refused. It moves no byte."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

LENGTH = re.compile(rb"(?:PUT|POST) \S*/_bulk\S* HTTP.*?\r\ncontent-length: (\d+)", re.IGNORECASE | re.DOTALL)
TOO_LARGE = b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
METHODS = (b"POST ", b"GET ", b"PUT ", b"HEAD ", b"DELETE ")


@dataclass
class Fault:
    """What the proxy does to traffic now; the default lets everything pass."""

    stalled: bool = False  # bytes are held in both directions until healed
    delay_seconds: float = 0.0  # before the first bytes of each reply
    bytes_a_second: float = 0.0  # of a reply; 0 = no limit
    lose: bytes = b""  # replies to requests that contain this are dropped
    lose_share: float = 1.0
    lose_most: float = float("inf")  # how many in total
    most_body_bytes: int = 0  # a larger bulk request gets 413, as from a gateway; 0 = no limit
    hold: bytes = b""  # requests that contain this are held


class Rules:
    """One for all connections of a proxy; a change takes effect at once, also for those that wait."""

    def __init__(self, seed: int, tap: Callable[[int, bytes], None] | None = None) -> None:
        self.fault = Fault()
        self.tap = tap
        self.counts: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._changed = threading.Condition()
        self._released = True
        self._ended = False

    def become(self, fault: Fault) -> None:
        with self._changed:
            self.fault = fault
            self._released = self._released and not fault.hold
            self._changed.notify_all()

    def release(self) -> None:
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def end(self) -> None:
        """Wake everyone who waits."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_while_stalled(self) -> None:
        with self._changed:
            while self.fault.stalled and not self._ended:
                self._changed.wait(0.5)

    def wait_for_release(self) -> None:
        with self._changed:
            while not self._released and not self._ended:
                self._changed.wait(0.5)

    def loses(self, request: bytes) -> bool:
        fault = self.fault
        if not fault.lose or fault.lose not in request or self.counts["replies_lost"] >= fault.lose_most:
            return False
        return self._dice.random() < fault.lose_share

    def refuses(self, request: bytes) -> bool:
        most = self.fault.most_body_bytes
        found = LENGTH.match(request[:2_000]) if most else None
        return found is not None and int(found[1]) > most
