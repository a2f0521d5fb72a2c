"""Where Kafka is the source: waits until the connector has brought to the topic what the database has committed.

Only the server that has the connector's slot knows that. What was not captured is in no topic and no table of events,
so without it a stopped connector would look like drift.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from outbox.errors import NotPermitted
from outbox.ops.status import size
from outbox.ports import Captured
from outbox.store.event_log import PostgresCapture

# Connect confirms with its offsets, every 60 s by default; our connector's heartbeat comes every 10 s.
CAPTURE_SECONDS: Final = 90.0
STOPPED_SECONDS: Final = 30.0  # a Connect that is started again has its slot back by then
CHECK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class CaptureWait:
    """`late`: why the waiting was in vain; empty where it was not. `unknown`: why this database cannot tell."""

    late: str = ""
    unknown: str = ""
    waited_seconds: float = 0.0


def await_capture(
    capture: PostgresCapture,
    timeout_seconds: float | None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> CaptureWait:
    """Until the topic has all that was committed before this call. Nobody waits for a stopped connector for long."""
    began, end = clock(), None
    while True:
        try:
            found = capture.read()
        except NotPermitted:
            return CaptureWait(unknown=_unknown(f"this role may not read slot {capture.slot}"))
        if found is None:
            return CaptureWait(unknown=_unknown(f"this database has no slot {capture.slot}"))
        end = found.end if end is None else end
        left, waited = end - found.confirmed, clock() - began
        if left <= 0:
            return CaptureWait(waited_seconds=waited)
        limits = (timeout_seconds, None if found.active else STOPPED_SECONDS)
        if waited >= min((limit for limit in limits if limit is not None), default=float("inf")) or found.is_lost:
            return CaptureWait(late=_late(found, capture.slot, left, waited), waited_seconds=waited)
        sleep(CHECK_SECONDS)


def _unknown(why: str) -> str:
    return f"{why}: what its connector has not captured yet was not waited for"


def _late(found: Captured, slot: str, left: int, waited: float) -> str:
    if found.is_lost:
        return f"slot {slot} is lost, so the connector captures nothing: see `outbox doctor`"
    if not found.active:
        return f"the connector is stopped (slot {slot} is not in use), and {_size(left)} are not captured"
    return f"the connector has not captured {_size(left)} within {waited:.0f} s (slot {slot}): see `outbox doctor`"


def _size(left: int) -> str:
    return f"{size(left)} of the write-ahead log"
