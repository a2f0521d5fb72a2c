"""Shows how far a long job is: a bar on a terminal, elsewhere a line every ten seconds. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from outbox.cli import output
from outbox.ops.status import age

LINE_EVERY_SECONDS = 10.0


class Meter(Protocol):
    def __call__(self, phase: str, done: int, estimate: int, remark: str = "") -> None: ...


@contextmanager
def meter() -> Iterator[Meter]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} / {task.total:,.0f}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=output.stderr(), transient=True) as bar:
        yield _Bars(bar)


class _Bars:
    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=1)
        self._phase = ""

    def __call__(self, phase: str, done: int, estimate: int, remark: str = "") -> None:
        if phase != self._phase:
            self._phase = phase
            self._bar.reset(self._task)
        words = f"{phase}, {remark}" if remark else phase
        self._bar.update(self._task, description=words, completed=done, total=max(estimate, done, 1))


class _Lines:
    """A log is read later: a line now and then, with an estimate of what is left."""

    def __init__(self) -> None:
        self._next = time.monotonic() + LINE_EVERY_SECONDS
        self._phase = ""
        self._began = time.monotonic()

    def __call__(self, phase: str, done: int, estimate: int, remark: str = "") -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began = phase, now
        if now < self._next:
            return
        self._next = now + LINE_EVERY_SECONDS
        output.note(
            f"{phase}: {done:,} of about {max(estimate, done):,}{self._left(done, estimate, now)} {remark}".strip()
        )

    def _left(self, done: int, estimate: int, now: float) -> str:
        took = now - self._began
        if done >= estimate or not done or took < 1:
            return ""
        return f", about {age(took * (estimate - done) / done)} left"
