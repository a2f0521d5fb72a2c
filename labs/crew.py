"""Owns the daemons and commands of a lab. Their environment comes from the stage."""

from __future__ import annotations

import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from labs.addresses import PEOPLE, known_as
from labs.errors import NotSeen, WorkerDied
from labs.recorder import samples
from labs.servers import Servers
from labs.story import Story
from labs.worker import ROOT, Worker, environment
from outbox.embedded.process import free_port

T = TypeVar("T")
# Waiting ends as soon as the fact is there; this limit only has to be longer than a busy machine needs. How long the
# daemons may take is checked from the record (labs/invariants.py).
PATIENCE_SECONDS = 120.0
Done = subprocess.CompletedProcess[str]


class Crew(ABC):
    """Daemons have names. A daemon that is started again counts as another (w1, w1.2)."""

    def __init__(self, servers: Servers, folder: Path, code: Path | None) -> None:
        self.servers = servers
        self.folder = folder
        self.story = Story()
        self.workers: dict[str, Worker] = {}
        self._ports: dict[str, int] = {}
        self._code = code

    @abstractmethod
    def settings(self, **more: str) -> dict[str, str]: ...

    @abstractmethod
    def address(self, worker: str) -> str:
        """The address of Elasticsearch for this daemon."""

    # Time and facts

    def mark(self, text: str, kind: str = "act") -> float:
        return self.story.mark(text, kind)

    def note(self, name: str, value: Any) -> None:
        """A value for the checks and the conclusion."""
        self.story.notes[name] = value

    def check(self) -> None:
        """Raise if something ended that should run."""
        self.servers.check()
        for worker in self.workers.values():
            if not worker.running and not worker.ended_on_purpose:
                raise WorkerDied(f"{worker.label} exited unexpectedly with {worker.exit_code}:\n{worker.tail()}")

    def watch(self, seconds: float) -> None:
        """Wait, and raise if something ends that must run."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(0.1, left))

    def wait_until(self, probe: Callable[[], T], what: str, within: float = PATIENCE_SECONDS) -> T:
        """The first true value of `probe`."""
        until = time.monotonic() + within
        while True:
            if seen := probe():
                return seen
            if time.monotonic() > until:
                raise NotSeen(f"{what}: not seen within {within:g} s")
            self.check()
            time.sleep(0.05)

    # Daemons

    @property
    def pythonpath(self) -> str:
        """The folder of the daemons' code."""
        return str(self._code or ROOT)

    def port(self, name: str) -> int:
        """A daemon keeps its port through restarts, so that Prometheus finds it again."""
        return self._ports.setdefault(name, free_port())

    def take_port(self, name: str, port: int) -> None:
        """Use this port for a daemon's pages."""
        self._ports[name] = port

    def start(self, name: str, settings: Mapping[str, str] | None = None, *, wait: bool = True) -> Worker:
        starts = sum(worker.name == name for worker in self.workers.values()) + 1
        label = name if starts == 1 else f"{name}.{starts}"
        places = {"OUTBOX_METRICS_PORT": str(self.port(name)), "ELASTIC_URL": self.address(name)}
        own = self.settings(**{**places, **(settings or {})})
        worker = Worker(name, label, own, self.folder, self._code)
        self.workers = {**self.workers, label: worker}
        self.mark(f"{label} started", "start")
        if wait:
            self.await_ready(name)
        return worker

    def await_ready(self, name: str) -> None:
        worker = self.worker(name)
        self.wait_until(lambda: worker.page("/readyz")[0] == 200, f"{worker.label} ready")

    def worker(self, name: str = "w1") -> Worker:
        """The latest start of that name."""
        return [worker for worker in self.workers.values() if worker.name == name][-1]

    def kill(self, name: str = "w1") -> None:
        worker = self.worker(name)
        worker.kill()
        self.mark(f"kill -9 {worker.label}", "kill")

    def total(self, metric: str) -> float:
        """The current sum over the daemons' pages; `metric` with its labels as in the timeline."""
        running = [worker for worker in self.workers.values() if worker.running and not worker.frozen]
        return sum(samples(worker.page("/metrics")[1]).get(metric, 0.0) for worker in running)

    # Commands

    def outbox(self, *arguments: str, expect: tuple[int, ...] = (0,), **settings: str) -> Done:
        """Runs `outbox ...` and keeps it in the report."""
        return self.program([sys.executable, "-m", "outbox", *arguments], ["outbox", *arguments], expect, **settings)

    def program(self, argv: list[str], shown: list[str], expect: tuple[int, ...], **settings: str) -> Done:
        own = self.settings(**settings)
        own["DATABASE_URL"] = known_as(PEOPLE, own["DATABASE_URL"])
        done = subprocess.run(
            argv,
            check=False,
            env=environment(own, self._code),
            cwd=self._code or ROOT,
            text=True,
            capture_output=True,
            timeout=120,
        )
        at = self.mark(" ".join(shown), "act")
        said = {"stdout": done.stdout[-4000:], "stderr": done.stderr[-2000:]}
        self.story.steps.append({"t": at, "command": shown, "exit": done.returncode, **said})
        if done.returncode not in expect:
            raise NotSeen(f"{' '.join(shown)} exited with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done
