"""Speaks systemd's notify protocol: ready, stopping, status, watchdog. Judges no progress itself; `alive` does."""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

STATUS_SECONDS: Final = 1.0


class Notifier:
    """Silent where no NOTIFY_SOCKET is given. An address that begins with @ is an abstract one."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        given = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + given[1:] if given.startswith("@") else given
        self.watchdog_seconds = _watchdog_seconds(environ)

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={_one_line(status)}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        self._send(f"STATUS={_one_line(text)}")

    def progress(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, *assignments: str) -> None:
        """The daemon works on without systemd: a socket that is gone is no reason to stop."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.settimeout(1)
            sock.sendto("\n".join(assignments).encode(), self._address)


class Watchdog:
    """Says READY, then reports to systemd: progress while there is some, because silence, when the loops no longer
    beat, means a restart; and the status line, whether a watchdog is asked for or not."""

    def __init__(self, notifier: Notifier, alive: Callable[[], bool], line: Callable[[], str]) -> None:
        self._notifier = notifier
        self._alive = alive
        self._line = line
        self._said = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        # Half the interval at most, as systemd advises.
        self._interval = min(notifier.watchdog_seconds / 2 or STATUS_SECONDS, STATUS_SECONDS)

    def start(self) -> None:
        self._said = self._line()
        self._notifier.ready(self._said)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2)

    def feed(self) -> None:
        if self._alive():
            self._notifier.progress()
        if (line := self._line()) != self._said:
            self._said = line
            self._notifier.status(line)

    def _run(self) -> None:
        self.feed()
        while not self._stop.wait(self._interval):
            self.feed()


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """0 = no watchdog, or one that is meant for another process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return max(int(environ.get("WATCHDOG_USEC", "0")), 0) / 1_000_000
    except ValueError:
        return 0.0


def _one_line(text: str) -> str:
    """A newline would begin the next assignment."""
    return " ".join(text.split())[:500]
