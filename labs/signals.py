"""Turns Ctrl-C and SIGTERM into an exception, at once or, during a restore, right after it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from labs.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruptions:
    """One per command. `shield` makes sure that a restore completes, however often Ctrl-C is pressed."""

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruptions:
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._depth:
            self._waiting = number
            print("labs: restoring first, please wait", file=sys.stderr, flush=True)
            return
        raise Interrupted(number)

    @contextmanager
    def shield(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def check(self) -> None:
        """Raise what arrived while shielded."""
        if self._waiting is not None and not self._depth:
            number, self._waiting = self._waiting, None
            raise Interrupted(number)
