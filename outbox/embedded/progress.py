"""Shows the progress of a download: one rewritten line on a terminal, a few lines elsewhere. It measures nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

Report = Callable[[str], None]
# Not on a terminal: a log needs only a few lines.
STEPS = 4


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201


class DownloadMeter:
    """Shows `done` of `total`. End it with `close`, which clears the line."""

    def __init__(self, title: str, total: int, report: Report) -> None:
        self._title, self._total, self._report = title, total, report
        self._drawn = sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
        self._step = 0

    def show(self, done: int) -> None:
        # Maven's own plugins are counted too, so it may be a little more than the total.
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
