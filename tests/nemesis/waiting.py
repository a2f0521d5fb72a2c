"""Waits until a server or a worker has done what it is about to do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait(
    look: Callable[[], Found],
    seconds: float,
    *,
    every: float = 0.1,
    stop: threading.Event | None = None,
    excused: tuple[type[Exception], ...] = (),
) -> Found | None:
    """What `look` finds, as soon as that is something; None when the time is over, or somebody says stop. Where the
    server may be down its errors are excused: nothing is found then."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(*excused):
            if found := look():
                return found
        if time.monotonic() > deadline or (stop is not None and stop.is_set()):
            return None
        time.sleep(every)
