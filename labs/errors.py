"""Owns what can go wrong with a lab itself, apart from what it finds out about the product."""

from __future__ import annotations

import signal


class LabError(Exception):
    """A lab could not be run. `exit_code` is the command's."""

    exit_code = 1


class UnknownLab(LabError):
    """No experiment has this name."""

    exit_code = 2


class NotSeen(LabError):
    """Something that was waited for did not happen in time."""

    exit_code = 3


class ServerDied(LabError):
    """A server ended that no experiment had stopped."""

    exit_code = 3


class WorkerDied(LabError):
    """A daemon ended that no experiment had stopped."""


class NotHere(LabError):
    """This experiment cannot be done on these servers; the message says what it needs."""

    exit_code = 3


class StackUnusable(LabError):
    """The servers cannot be used for labs; the message says why."""

    exit_code = 75


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM: not an error, so that no `except Exception` swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number
