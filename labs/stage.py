"""Owns what an experiment acts on: its database, index, daemons and links, and the way back. It judges nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from elasticsearch import Elasticsearch

from labs import index, snapshots
from labs.errors import NotSeen, WorkerDied
from labs.experiment import SETTINGS, Experiment
from labs.ledger import Ledger
from labs.producing import TABLE, Producer
from labs.proxy import Proxy
from labs.recorder import Recorder, samples
from labs.secured import secured_elasticsearch
from labs.servers import Servers
from labs.story import Story
from labs.table import Table
from labs.worker import ROOT, Worker, environment
from outbox.embedded.process import free_port

T = TypeVar("T")
R = TypeVar("R", bound="Closing")
Done = subprocess.CompletedProcess[str]
TRANSITIONS = Path(__file__).with_name("transitions.sql")


class Closing(Protocol):
    def close(self) -> None: ...


class Stage:
    """Everything made here is undone by `close`, in reverse; `heal` undoes the faults alone."""

    table: Table
    elastic_link: Proxy  # what all daemons reach Elasticsearch through
    database_link: Proxy
    ledger: Ledger
    producer: Producer
    recorder: Recorder

    def __init__(
        self, experiment: Experiment, servers: Servers, folder: Path, *, name: str, seed: int, code: Path | None = None
    ) -> None:
        self.experiment = experiment
        self.servers = servers
        self.folder = folder
        self.seed = seed
        self.database = name.replace("-", "_")
        self.index = name
        self.elastic_url = servers.elastic_url
        self.elastic: Elasticsearch = servers.elastic  # past the proxies
        self.story = Story()
        self.workers: dict[str, Worker] = {}
        self.links: dict[str, Proxy] = {}
        self._ports: dict[str, int] = {}
        self._code = code
        self._secrets: Path | None = None
        self._resources: dict[str, Any] = {}
        self._undo = ExitStack()
        self._faults = ExitStack()

    # Opening and closing

    def start_servers(self) -> None:
        """What only this experiment needs, and what takes long."""
        if self.experiment.secured:
            self.elastic_url, self.elastic = self._undo.enter_context(secured_elasticsearch())

    def open(self) -> None:
        experiment = self.experiment
        self._undo.callback(self.servers.drop_database, self.database)
        database_url = self.servers.create_database(self.database)
        index.create(self.elastic, self.index, experiment.index_settings, experiment.mapping)
        self._undo.callback(self._drop_index)
        self._open_running(database_url)

    def _open_running(self, database_url: str) -> None:
        self.elastic_link = self._start_link(Proxy.to(self.elastic_url, "elasticsearch", self.seed))
        self.database_link = self._start_link(Proxy.to(database_url, "postgresql", self.seed))
        self.ledger = Ledger(self.folder / "ledger.ndjson")
        self._undo.callback(self.ledger.close)
        self.table = Table(database_url, self.ledger)
        with self.table.connect() as connection:
            connection.execute(TRANSITIONS.read_bytes())
            connection.execute(TABLE)
        self.producer = Producer(database_url, self.experiment.load, self.ledger, self.seed)
        self.recorder = self._new_recorder(database_url)
        self._undo.callback(self.recorder.stop)
        self.recorder.start()

    def _drop_index(self) -> None:
        if self.index not in self.servers.kept:
            index.drop(self.elastic, self.index)

    def link(self, name: str) -> Proxy:
        """The road to Elasticsearch: one for all, or each daemon's own where links are apart."""
        wanted = name if self.experiment.links_apart else "elasticsearch"
        return self.links.get(wanted) or self._start_link(Proxy.to(self.elastic_url, wanted, self.seed))

    def _start_link(self, link: Proxy) -> Proxy:
        link.start()
        self.links[link.name] = link
        self._undo.callback(link.stop)
        self._faults.callback(link.heal)
        return link

    def _new_recorder(self, database_url: str) -> Recorder:
        return Recorder(
            self.folder,
            database_url,
            self.elastic,
            self.index,
            lambda: list(self.workers.values()),
            self.ledger,
            self.story.now,
        )

    def close(self, *, keep: bool = False) -> None:
        """Nothing of this lab runs any more and, unless `keep`, nothing of it is left on the servers."""
        for worker in self.workers.values():
            worker.kill()
        if keep:
            self.servers.keep(self.database, self.index)
        self._undo.close()

    def undo_later(self, act: Callable[[], object]) -> None:
        """What a fault must leave as it was, called by `heal`, also when the lab is interrupted."""
        self._faults.callback(act)

    def heal(self) -> None:
        """Faults end: links pass, frozen daemons go on, stopped servers run, settings are as before."""
        for worker in self.workers.values():
            worker.thaw()
        try:
            self.servers.revive()
        finally:
            self._faults.close()

    # Time and facts

    def mark(self, text: str, kind: str = "act") -> float:
        return self.story.mark(text, kind)

    def note(self, name: str, value: Any) -> None:
        """A value that checks and the conclusion read."""
        self.story.notes[name] = value

    def snapshot(self, moment: str) -> None:
        with self.table.connect() as connection:
            self.story.snapshots[moment] = {"t": round(self.story.now(), 1), **snapshots.take(connection)}

    def check(self) -> None:
        """Raise when something ended that should run."""
        self.servers.check()
        for worker in self.workers.values():
            if not worker.running and not worker.ended_on_purpose:
                raise WorkerDied(f"{worker.label} ended by itself with {worker.exit_code}:\n{worker.tail()}")

    def watch(self, seconds: float) -> None:
        """Let time pass, with an eye on what must go on running."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(0.1, left))

    def wait_until(self, look: Callable[[], T], what: str, within: float = 20.0) -> T:
        """The first true value of `look`."""
        until = time.monotonic() + within
        while True:
            if seen := look():
                return seen
            if time.monotonic() > until:
                raise NotSeen(f"{what}: not seen within {within:g} s")
            self.check()
            time.sleep(0.05)

    def idle(self) -> None:
        """No load and no open event, so that what comes next is claimed at once; `producer.resume` ends it."""
        self.producer.pause()
        self.wait_until(lambda: self.table.count("processed_at is null and failed_at is null") == 0, "an idle moment")

    # Elasticsearch

    def elasticsearch_away(self) -> None:
        """Stopped where it is ours, cut off where it was given. `heal` brings it back."""
        self.elastic_link.cut()
        if self.servers.has_own_elasticsearch:
            self.servers.expect_down("elasticsearch")
            self.servers.elasticsearch().stop()
        how = "stopped" if self.servers.has_own_elasticsearch else "cut off"
        self.note("away_by", how)
        self.mark(f"Elasticsearch {how}", "fault")

    @property
    def real_index(self) -> str:
        """The index behind the alias."""
        return f"{self.index}-v1"

    def resource(self, name: str, make: Callable[[], R]) -> R:
        """Something of the experiment's own, made once and closed with the lab."""
        if name not in self._resources:
            made = make()
            self._resources[name] = made
            self._undo.callback(made.close)
        found: R = self._resources[name]
        return found

    def secret_file(self, name: str) -> Path:
        """A place outside the report's folder for what must not be kept; gone when the lab is."""
        if self._secrets is None:
            self._secrets = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="outbox-lab-")))
        return self._secrets / name

    # Daemons and commands

    def settings(self, **more: str) -> dict[str, str]:
        """What daemons and commands of this lab are started with."""
        direct = self.table.database_url
        return {
            **SETTINGS,
            "DATABASE_URL": self.database_link.url(direct) if self.experiment.database_link else direct,
            "ELASTIC_URL": self.elastic_link.url(self.elastic_url),
            "ELASTIC_INDEX": self.index,
            **self.experiment.settings,
            **self.experiment.own_settings(self),
            **more,
        }

    @property
    def pythonpath(self) -> str:
        """Where the daemons' code is."""
        return str(self._code or ROOT)

    def port(self, name: str) -> int:
        """A daemon's pages stay at one place through its restarts, so that a Prometheus finds it again."""
        return self._ports.setdefault(name, free_port())

    def take_port(self, name: str, port: int) -> None:
        """Have a daemon's pages at this port."""
        self._ports[name] = port

    def start(self, name: str, settings: Mapping[str, str] | None = None, *, wait: bool = True) -> Worker:
        """A daemon; started again under its old name it counts as another (w1.2)."""
        starts = sum(worker.name == name for worker in self.workers.values()) + 1
        label = name if starts == 1 else f"{name}.{starts}"
        address = self.link(name).url(self.elastic_url)
        own = self.settings(**{"OUTBOX_METRICS_PORT": str(self.port(name)), "ELASTIC_URL": address, **(settings or {})})
        worker = Worker(name, label, own, self.folder, self._code)
        self.workers = {**self.workers, label: worker}
        self.mark(f"{label} started", "start")
        if wait:
            self.await_ready(name)
        return worker

    def await_ready(self, name: str) -> None:
        worker = self.worker(name)
        self.wait_until(lambda: worker.page("/readyz")[0] == 200, f"{worker.label} ready", 60)

    def worker(self, name: str = "w1") -> Worker:
        """The latest start of that name."""
        return [worker for worker in self.workers.values() if worker.name == name][-1]

    def kill(self, name: str = "w1") -> None:
        worker = self.worker(name)
        worker.kill()
        self.mark(f"kill -9 {worker.label}", "kill")

    def total(self, metric: str) -> float:
        """The sum over the daemons' pages now; `metric` with its labels as in the timeline."""
        running = [worker for worker in self.workers.values() if worker.running and not worker.frozen]
        return sum(samples(worker.page("/metrics")[1]).get(metric, 0.0) for worker in running)

    def outbox(self, *arguments: str, expect: tuple[int, ...] = (0,), **settings: str) -> Done:
        """`outbox ...` as a person would type it; kept in the report."""
        return self.program([sys.executable, "-m", "outbox", *arguments], ["outbox", *arguments], expect, **settings)

    def program(self, argv: list[str], told: list[str], expect: tuple[int, ...], **settings: str) -> Done:
        done = subprocess.run(
            argv,
            check=False,
            env=environment(self.settings(**settings), self._code),
            cwd=self._code or ROOT,
            text=True,
            capture_output=True,
            timeout=120,
        )
        at = self.mark(" ".join(told), "act")
        said = {"stdout": done.stdout[-4000:], "stderr": done.stderr[-2000:]}
        self.story.steps.append({"t": at, "command": told, "exit": done.returncode, **said})
        if done.returncode not in expect:
            raise NotSeen(f"{' '.join(told)} left with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done
