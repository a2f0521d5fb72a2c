"""Runs programs of ours beside this one: the projector and, later, the console of `outbox up`. Joins no services."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outbox.embedded.account import Account
from outbox.embedded.folders import make_folder
from outbox.embedded.process import Command, SupervisedProcess, tail
from outbox.errors import OutboxError


class PartEnded(OutboxError):
    """A part of `outbox up` ended by itself, and the rest was stopped. The end of its log says why."""


@dataclass(slots=True)
class Part:
    """`outbox COMMAND` as a process of its own. It ends when this process does, kill -9 included."""

    name: str
    command: list[str]
    log: Path
    process: SupervisedProcess | None = None

    def start(self, env: Mapping[str, str]) -> None:
        make_folder(self.log.parent)
        argv = [sys.executable, "-m", "outbox", *self.command]
        account = Account(os.geteuid(), os.getegid())
        self.process = SupervisedProcess(Command(argv, Path.cwd(), dict(env), signal.SIGTERM), account, self.log)

    def check(self) -> None:
        if self.process is not None and not self.process.running:
            raise PartEnded(f"{self.name}, log {self.log}\n{tail(self.log)}")

    def stop(self) -> None:
        """SIGTERM, and wait: the projector drains within its grace."""
        if self.process is not None:
            self.process.stop()
