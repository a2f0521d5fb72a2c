"""Runs one server process for a parent that may die at any time. When the parent dies, it stops the server.

It is a separate script that uses only the standard library, so that it starts in about 20 ms and outlives every crash
of its parent. It reads its task from standard input, which only the parent holds open: end of file means that the
parent is dead, even by kill -9. (PR_SET_PDEATHSIG alone would stop the server when the *thread* that started it ends.)
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

PARENT = 0


@dataclass(frozen=True)
class Task:
    """What to run and how to stop it."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    uid: int
    gid: int
    stop_signal: int
    stop_seconds: float


def follow_parent(number: int) -> Callable[[], None]:
    """Let the kernel stop the server if this supervisor itself is killed (only on Linux)."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(1, number)  # 1 is PR_SET_PDEATHSIG; a uid change clears it, so it comes after that


def start(task: Task) -> subprocess.Popen[bytes]:
    as_other = task.uid != os.geteuid()
    return subprocess.Popen(
        task.argv,
        cwd=task.cwd,
        env=task.env,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=follow_parent(task.stop_signal),  # noqa: PLW1509  (single thread: safe here)
        user=task.uid if as_other else None,
        group=task.gid if as_other else None,
        extra_groups=[] if as_other else None,
    )


def has_ended(server: subprocess.Popen[bytes]) -> bool:
    """Whether the server ended. It is not reaped, so that its pid and group are not reused."""
    return os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait_for_end_of_parent_or_server(server: subprocess.Popen[bytes]) -> None:
    wakeup, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    while not has_ended(server):
        readable, _, _ = select.select([PARENT, wakeup], [], [])
        if PARENT in readable or any(byte != signal.SIGCHLD for byte in os.read(wakeup, 64)):
            return


def stop(server: subprocess.Popen[bytes], task: Task) -> None:
    deadline = time.monotonic() + task.stop_seconds
    if not has_ended(server):
        server.send_signal(task.stop_signal)
    while not has_ended(server) and time.monotonic() < deadline:
        time.sleep(0.02)
    # The whole group, because Elasticsearch is two processes. The server leads it: it started a session.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def read_task() -> Task:
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        sys.exit("the parent died before it sent the task")
    return Task(**json.loads(line))


def main() -> int:
    task = read_task()
    server = start(task)
    wait_for_end_of_parent_or_server(server)
    stop(server, task)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    sys.exit(main())
