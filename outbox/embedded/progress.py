"""Owns how a long fetch is shown: one rewritten line on a terminal, a few lines elsewhere; it measures nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

Report = Callable[[str], None]
# Off a terminal the reader is a log.
STEPS = 4


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201


class Meter:
    """Shows `done` of `total`; leave it with `close`, which clears the line."""

    def __init__(self, title: str, total: int, report: Report) -> None:
        self._title, self._total, self._report = title, total, report
        self._drawn = sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
        self._step = 0

    def show(self, done: int) -> None:
        # What is fetched beside the archive (Maven's own plugins) counts too, so it may be a little more.
        done = min(done, self._total)
        line = f"{self._title}: {done} of {self._total} MB"
        if self._drawn:
            _write(f"\r\x1b[K{line}")
        elif (step := done * STEPS // self._total) > self._step and step < STEPS:
            self._report(line)
            self._step = step

    def close(self) -> None:
        if self._drawn:
            _write("\r\x1b[K")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
