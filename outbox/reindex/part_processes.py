"""Local processes for parts: starts them, replaces who died, ends them. What they do is in `part_work`.

A process gets its job on standard input and reports its end on standard output. Standard input stays open while it is
wanted: its end, also by the death of this process, tells it to stop. So nothing secret is in an argument or a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

import orjson

from outbox.errors import OutboxError
from outbox.reindex.parallel import PartJob
from outbox.reindex.parts import PartsProgress
from outbox.reindex.rebuild_steps import named_owner

if TYPE_CHECKING:
    from outbox.reindex.part_table import PostgresParts

CHECK_SECONDS: Final = 0.25
STOP_SECONDS: Final = 45.0  # a request may take 30 s to its deadline; then it is killed, which does no harm
MOST_DEATHS: Final = 12  # in a row, without any progress
ENTRY: Final = "outbox.app.part_process"


class PartProcessFailed(OutboxError):
    """A process that works on parts failed. What is written stays written. Fix the cause, then continue: rebuild and
    backfill with `--resume`, verify and repair by running them again."""


class PartProcessDied(OutboxError):
    """Processes that work on parts die again and again: killed by the kernel for lack of memory, or by someone. What is
    written stays written. Find the cause, then continue, with a lower --parallel if memory is short: rebuild and
    backfill with `--resume`, verify and repair by running them again."""


@dataclass(slots=True)
class PartProcess:
    process: subprocess.Popen[bytes]
    owner: str

    @property
    def input(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def ask_to_stop(self) -> None:
        with suppress(BrokenPipeError):
            self.input.close()

    def reported(self) -> Mapping[str, Any] | None:
        """How it ended, in its own words. None: it died without any."""
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        self.process.stdout.close()
        try:
            found = orjson.loads(said)
        except orjson.JSONDecodeError:
            return None
        return found if isinstance(found, dict) else None


@dataclass(slots=True)
class LocalProcesses:
    environment: Mapping[str, str]
    at_once: int
    _job: PartJob | None = None
    _table: PostgresParts | None = None
    _running: list[PartProcess] = field(default_factory=list)
    _deaths: int = 0
    _done: int = -1

    def start(self, job: PartJob, table: PostgresParts) -> None:
        self._job, self._table = job, table
        for _ in range(min(self.at_once, max(1, len(table.numbers())))):
            self._begin()

    def tend(self, progress: PartsProgress) -> None:
        time.sleep(CHECK_SECONDS)
        for ended in [each for each in self._running if each.process.poll() is not None]:
            self._running.remove(ended)
            self._judge(ended)
        if progress.done > self._done:  # a comparison that begins again is no progress
            self._done, self._deaths = progress.done, 0
        if self._deaths > MOST_DEATHS:
            raise PartProcessDied(f"{self._deaths} in a row")
        free = progress.open - progress.held
        while free > 0 and len(self._running) < self.at_once:
            self._begin()
            free -= 1

    def _begin(self) -> None:
        assert self._job is not None
        process = subprocess.Popen(
            [sys.executable, "-m", ENTRY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which then ends them
        )
        begun = PartProcess(process, named_owner(process.pid))
        told = {"environment": dict(self.environment), "job": self._job._asdict(), "owner": begun.owner}
        self._running.append(begun)
        with suppress(BrokenPipeError):  # it is dead: `tend` finds it
            begun.input.write(orjson.dumps(told) + b"\n")
            begun.input.flush()

    def _judge(self, ended: PartProcess) -> None:
        ended.ask_to_stop()
        said = ended.reported()
        if said is not None and not said.get("error"):
            return
        assert self._table is not None
        self._table.free([ended.owner])
        if said is not None:
            raise reported_error(said)
        self._deaths += 1

    def stop(self) -> None:
        for each in self._running:
            each.ask_to_stop()
        for each in self._running:
            try:
                each.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
            each.reported()
        if self._table is not None:
            self._table.free([each.owner for each in self._running])
        self._running = []


def told_error(error: BaseException) -> dict[str, Any]:
    """An error as a process reports it: names and words, no values."""
    if isinstance(error, OutboxError):
        return {"error": type(error).__name__, "detail": error.detail, "message": error.message}
    return {"error": type(error).__name__, "detail": "", "message": type(error).__name__}


def reported_error(told: Mapping[str, Any]) -> OutboxError:
    """The same error here: whoever started the work knows what it means for it."""
    for kind in _kinds(OutboxError):
        if kind.__name__ == told["error"]:
            try:
                return kind(told["detail"])
            except TypeError:
                break
    return PartProcessFailed(told["message"])


def _kinds(kind: type[OutboxError]) -> list[type[OutboxError]]:
    return [kind, *(below for each in kind.__subclasses__() for below in _kinds(each))]


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
