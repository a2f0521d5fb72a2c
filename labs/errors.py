"""Owns the errors of a lab itself, in contrast to what it finds out about the product."""

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
    """A server ended that no experiment stopped."""

    exit_code = 3


class WorkerDied(LabError):
    """A daemon ended that no experiment stopped."""


class NotHere(LabError):
    """This experiment cannot run on these servers; the message says what it needs."""

    exit_code = 3


class StackUnusable(LabError):
    """The servers cannot be used for labs; the message says why."""

    exit_code = 75


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM. Not an Exception, so that no `except Exception` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number
