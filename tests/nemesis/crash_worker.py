"""Runs `outbox` as the tests' own worker: forked from a warm process, in 0.1 s, armed to die at a point, or not.

Reads orders as JSON lines: {"env": {...}, "argv": [...], "log": path, "point": name or null, "after": n}. Answers
{"pid": n}, and {"ended": pid, "status": code} when one is over. All of them end with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from typing import Any

import outbox.app.chores
import outbox.app.daemon
import outbox.cli
import outbox.cli.menu
from outbox.store import pool
from tests.nemesis.crash_hooks import arm

__all__ = ["main"]

PR_SET_PDEATHSIG = 1
PATIENCE_SECONDS = 120  # for a connection; longer than a busy machine needs


def main() -> None:
    be_patient()
    said = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.02)
        if readable:
            piece = os.read(0, 65_536)
            if not piece:
                return
            said += piece
            *lines, said = said.split(b"\n")
            for line in lines:
                _answer({"pid": _fork(json.loads(line))})
        _reap()


def be_patient() -> None:
    """A command gives up when the database does not answer within five seconds, as on a busy machine. Here it is always
    up, and what counts is where a process dies."""
    pool.OPTIONS["connect_timeout"] = PATIENCE_SECONDS
    defaults = pool.Database.__init__.__kwdefaults__
    assert defaults is not None
    defaults["timeout_seconds"] = float(PATIENCE_SECONDS)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _answer({"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _answer(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _become(order)
    finally:
        os._exit(code)


def _become(order: dict[str, Any]) -> int:
    """A process like any other `outbox ...`: its own environment, its own log."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in ((0, nothing), (1, log), (2, log)):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = ["outbox", *order["argv"]]
    if order["point"]:
        arm(order["point"], order["after"])
    try:
        outbox.cli.main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    return 0


if __name__ == "__main__":
    main()
