"""Shows how far a long job is: a bar on a terminal, elsewhere a line every ten seconds. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outbox import cli

LINE_EVERY_SECONDS = 10.0


class _Bar:
    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._phase = ""

    def __call__(self, phase: str, done: int, estimate: int, remark: str = "") -> None:
        self._draw(phase)
        words = f"{phase}, {remark}" if remark else phase
        self._bar.update(self._task, description=words, completed=done, total=max(estimate, done, 1))

    def _draw(self, phase: str) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as Bar  # noqa: PLC0415

        if self._bar is not None and phase == self._phase:
            return
        self.close()
        count = TextColumn("{task.completed:,.0f} / {task.total:,.0f}")
        columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
        self._bar, self._phase = Bar(*columns, console=cli.printer(stderr=True), transient=True), phase
        self._task = self._bar.add_task("", total=1)
        self._bar.start()

    def close(self) -> None:
        """Clear the line: someone is to be asked, or it is over. The next call draws it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class _Lines:
    """A log is read later: a line now and then."""

    def __init__(self) -> None:
        self._next = time.monotonic() + LINE_EVERY_SECONDS

    def __call__(self, phase: str, done: int, estimate: int, remark: str = "") -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY_SECONDS
            cli.note(f"{phase}: {done:,} of about {max(estimate, done):,} {remark}".strip())

    def close(self) -> None:
        pass


ProgressMeter = _Bar | _Lines


@contextmanager
def meter() -> Iterator[ProgressMeter]:
    made = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        yield made
    finally:
        made.close()
