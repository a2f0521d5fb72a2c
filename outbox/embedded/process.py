"""Owns one supervised server process: start, recognise, end. It does not know which server it is."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from outbox.embedded import supervisor
from outbox.embedded.safe_files import new_file
from outbox.embedded.server_account import Account, caller_environment

STOP_SECONDS = 30.0
# An argument of every JVM of ours, followed by its folder.
MARK = "-Doutbox.embedded.folder="
LOWEST_PORT, PORT_TRIES = 20_000, 50  # above the usual ports of servers that people know
PORTS_KEPT = 64  # this many ports that were given last are nobody else's, until this process ends
_given: deque[socket.socket] = deque()
atexit.register(lambda: deque(map(socket.socket.close, _given), maxlen=0))  # an open socket is a warning


@dataclass(frozen=True)
class Command:
    """How a server is run, and the signal that stops it."""

    argv: list[str]
    cwd: Path
    env: dict[str, str]
    stop_signal: int


class SupervisedProcess:
    """A server under its supervisor. It ends when this object is stopped or this Python process dies."""

    def __init__(self, command: Command, account: Account, log: Path) -> None:
        task = {
            "argv": command.argv,
            "cwd": str(command.cwd),
            "env": caller_environment() | command.env,
            "uid": account.uid,
            "gid": account.gid,
            "stop_signal": command.stop_signal,
            "stop_seconds": STOP_SECONDS,
        }
        with os.fdopen(new_file(log), "ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is handled by the parent, which stops the servers in order
            )
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(task).encode() + b"\n")
        self._popen.stdin.flush()

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def processes(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._popen.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def stop(self) -> None:
        """Stop it and wait until it has ended."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        self._popen.wait(STOP_SECONDS + 10)

    def kill(self) -> None:
        """kill -9 for all its processes at once, like a crash."""
        victims = self.processes()
        send(victims, signal.SIGKILL)
        await_end(victims, 10)
        self.stop()


def send(processes: Iterable[psutil.Process], number: int) -> None:
    """Signal each process. psutil refuses a pid that now belongs to another process."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def end_servers_in(folder: Path) -> None:
    """End what a killed owner left running in a folder. The caller holds the folder's lock."""
    # SIGINT is PostgreSQL's fast shutdown and an orderly end for a JVM; SIGTERM would make PostgreSQL wait for clients.
    left = [process for process in psutil.process_iter() if serves_in(process, folder)]
    send(left, signal.SIGINT)
    send(left, signal.SIGCONT)  # a lab may have frozen them
    send(await_end(left, STOP_SECONDS), signal.SIGKILL)
    await_end(left, 10)


def await_end(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait for processes to end; returns those that did not. A zombie counts as ended."""
    deadline = time.monotonic() + seconds
    while alive := [process for process in processes if _lives(process)]:
        if time.monotonic() > deadline:
            return alive
        time.sleep(0.02)
    return []


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def serves_in(process: psutil.Process, folder: Path) -> bool:
    """Whether a process is certainly a server of this folder: by its arguments, or PostgreSQL's working folder.

    A reader of our logs or a shell in our folder is not.
    """
    try:
        places = [word.removeprefix(MARK) for word in process.cmdline() if word.startswith(MARK)]
        if process.name() == "postgres":
            places.append(process.cwd())
    except psutil.Error:
        return False
    return any(Path(place).is_relative_to(folder) for place in places)


def free_port() -> int:
    """A loopback port that nobody uses now and that nobody else is given while a server starts on it.

    Not one of the kernel's own range where there are others: the kernel may give that one to any client's connection
    before the server listens.
    """
    ours = range(LOWEST_PORT, _first_of_the_kernel())
    for port in random.sample(ours, min(PORT_TRIES, len(ours))):
        claim = claim_port(port)
        if claim is not None and _is_free(port):
            _given.append(claim)
            if len(_given) > PORTS_KEPT:
                _given.popleft().close()
            return port
        if claim is not None:
            claim.close()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _first_of_the_kernel() -> int:
    """The lowest port that an outgoing connection may have."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32768  # macOS begins at 49152


def claim_port(port: int) -> socket.socket | None:
    """Reserves the port among our processes on this machine until the socket is closed; None if it is reserved already.

    A port is free until its server listens, seconds after it was chosen. Two starts at once would choose the same.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        if sys.platform.startswith("linux"):  # an abstract name: it ends with its owner and needs no folder
            claim.bind(f"\0outbox-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim


def await_free(port: int, seconds: float) -> bool:
    """Wait for the port of a server that was killed: the threads of a JVM outlive it by a moment."""
    deadline = time.monotonic() + seconds
    while not _is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def tail(log: Path, lines: int = 25) -> str:
    if not log.exists() or not log.stat().st_size:
        return f"(nothing is in its log, {log})"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16_384))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
