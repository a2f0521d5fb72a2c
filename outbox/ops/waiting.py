"""Waits until everything that was committed before has been settled. Changes nothing and decides no event."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

LOOK_SECONDS: Final = 0.2


class OpenEvents(Protocol):
    def last_seq(self) -> int: ...
    def open_up_to(self, seq: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Waited:
    """`left`: of the events that were there when the waiting began, how many are still open."""

    caught_up: bool
    left: int
    waited_seconds: float


def wait_until_caught_up(
    events: OpenEvents,
    timeout_seconds: float | None,
    *,
    tell: Callable[[int], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Waited:
    """Later events do not count, or a busy queue would never be caught up. Failed and discarded ones are settled."""
    began, mark = clock(), events.last_seq()
    while left := events.open_up_to(mark):
        waited = clock() - began
        if timeout_seconds is not None and waited >= timeout_seconds:
            return Waited(False, left, waited)
        tell(left)
        sleep(LOOK_SECONDS if timeout_seconds is None else min(LOOK_SECONDS, max(timeout_seconds - waited, 0.01)))
    return Waited(True, 0, clock() - began)
