"""Owns the lifecycle of one embedded server: start, stop, kill, freeze, and cleaning up after a crash.

The differences (files, command, probe) are in `postgres.py` and `elasticsearch.py`.
"""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from outbox.embedded.errors import EmbeddedServerFailed, FolderInUse, PortTaken
from outbox.embedded.folders import FolderLock, abandoned_folders, default_data_dir, temporary_folder
from outbox.embedded.process import (
    Command,
    SupervisedProcess,
    await_free,
    end_servers_in,
    free_port,
    send,
    tail,
)
from outbox.embedded.server_account import Account

# What the servers' logs say when another program took the port between the search for a free one and the start.
PORT_TAKEN: Final = ("Address already in use", "could not bind", "Failed to bind", "Unable to initialize REST server")
BUSY: Final = "A busy machine may need longer: try again when it does less, or use a server that runs already."


class Startable(ABC):
    """What is started on entering and stopped on leaving."""

    title: str

    @abstractmethod
    def __init__(self, folder: Path, **options: Any) -> None: ...

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def stop(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    @classmethod
    @contextmanager
    def temporary(cls, data_dir: Path | None = None, **options: Any) -> Iterator[Self]:
        """One with new data in a folder that is removed afterwards. Options as for the class."""
        place = data_dir or default_data_dir()
        remove_abandoned(place)
        with temporary_folder(place) as folder, cls(folder / cls.title.lower(), **options) as started:
            yield started


class EmbeddedServer(Startable):
    """A server in its own folder, reachable on 127.0.0.1 only. It keeps its port through restarts."""

    ready_seconds: float

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.folder = folder.resolve()
        self.log = self.folder / "server.log"
        self._fixed_port = port
        self._port: int | None = port
        self._served = False
        self._lock = FolderLock(self.folder)
        self._process: SupervisedProcess | None = None
        self._account = Account.for_servers()

    @abstractmethod
    def _prepare(self) -> None:
        """Write the files that the server needs to start."""

    @abstractmethod
    def _command(self) -> Command: ...

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it serves requests now."""

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    def port(self) -> int:
        assert self._port is not None, f"{self.title} was not started"
        return self._port

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> Self:
        self.launch()
        self.await_ready()
        return self

    def launch(self) -> None:
        """Start it without waiting until it answers. Does nothing if it runs already."""
        if self.running:
            return
        if not self._lock.acquire():
            raise FolderInUse(str(self.folder))
        try:
            self._account.share_folder(self.folder)
            end_servers_in(self.folder)
            self._run()
        except BaseException:
            self._lock.release()
            raise

    def _run(self) -> None:
        self._port = self._fixed_port or free_port()
        if self._fixed_port and not await_free(self._port, 10.0 if self._served else 0.0):
            raise PortTaken(f"{self.title}, port {self._port}")
        with suppress(FileNotFoundError):
            self.log.replace(self.log.with_suffix(".log.1"))
        self._prepare()
        self._process = SupervisedProcess(self._command(), self._account, self.log)

    def await_ready(self) -> None:
        deadline = time.monotonic() + self.ready_seconds
        while not self._answers():
            late = time.monotonic() > deadline
            lost = not self.running and any(mark in tail(self.log) for mark in PORT_TAKEN)
            if lost and self._process is not None and self._fixed_port is None:
                self._process.stop()
                self._run()
            elif late or not self.running:
                why = f" not ready after {self.ready_seconds:g} s. {BUSY}" if late else ""
                self.stop()
                raise EmbeddedServerFailed(f"{self.title}:{why}\n{tail(self.log)}")
            time.sleep(0.05)
        self._fixed_port, self._served = self._port, True  # clients know the port from now on

    def stop(self) -> None:
        """Stop it in an orderly way. Does nothing if it does not run."""
        if self._process is not None:
            self.thaw()
            self._process.stop()
            self._process = None
        self._lock.release()

    def kill(self) -> None:
        """End it like a crash; `start` recovers."""
        if self._process is not None:
            self._process.kill()
            self._process = None
        self._lock.release()

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Stop it from answering while its connections stay open, like a hung machine."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        if self._process is not None:
            send(self._process.processes(), number)


def remove_abandoned(data_dir: Path) -> None:
    """End and remove temporary servers whose owner was killed."""
    for folder in abandoned_folders(data_dir):
        end_servers_in(folder)
