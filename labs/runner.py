"""Runs one experiment: baseline, fault, recovery, quiesce, verify. It always restores, and evaluates nothing."""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from labs import about
from labs.alerts import AlertWatch
from labs.collect import OF_THE_LOG, TABLES, collect
from labs.errors import Interrupted, NotSeen, WorkerDied
from labs.experiment import Experiment
from labs.problems import BROKEN_LAB, Problem, problem
from labs.servers import Servers
from labs.signals import Interruptions
from labs.stage import Stage

STEADY_DONE = 40

OPEN_BEFORE = """
select count(*) from search_outbox_events
 where processed_at is null and failed_at is null and created_at < %(at)s
"""


@dataclass
class Run:
    """One run of one experiment in its own folder."""

    experiment: Experiment
    servers: Servers
    folder: Path
    interruptions: Interruptions
    say: Callable[[str], None]
    operator: str = ""
    seed: int = 1
    keep: bool = False
    watch_alerts: bool = True
    code: Path | None = None
    problems: list[dict[str, str]] = field(default_factory=list)
    exit_codes: dict[str, int | None] = field(default_factory=dict)
    interrupted: Interrupted | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"lab-{self.experiment.name.replace('_', '-')}-{uuid.uuid4().hex[:6]}"
        seed, code = self.seed, self.code
        self.stage = Stage(self.experiment, self.servers, self.folder, name=name, seed=seed, code=code)
        ports = [self.stage.port(worker) for worker in self.experiment.workers]
        self.alerts = AlertWatch(ports, self.stage.story.now, wanted=self.watch_alerts)

    def run(self) -> None:
        """Always leaves record.json and the raw data in the folder."""
        about.write_made(self)
        try:
            with self._noting():
                self._go()
        finally:
            with self.interruptions.shield():
                self._leave()
                about.write(self)

    def _go(self) -> None:
        self._phase("baseline", self._baseline)
        try:
            with self._noting(NotSeen, WorkerDied):
                self._phase("fault", self._fault)
        finally:
            with self.interruptions.shield():
                self._restore()
        self.interruptions.check()
        with self._noting(NotSeen, WorkerDied):
            self._phase("recovery", self._recover)
        with self._noting(NotSeen, WorkerDied):
            self._phase("quiesce", self._quiesce)
        self._phase("verify", self._verify)

    # Phases

    def _phase(self, name: str, act: Callable[[], None]) -> None:
        self.stage.story.begin(name)
        if name != "baseline":
            self.stage.recorder.phase = name
        self.say(f"  {name:<9} {self.stage.story.now():6.1f} s")
        act()

    def _baseline(self) -> None:
        stage = self.stage
        stage.start_servers()
        with self.interruptions.shield():  # what is half created could not be undone
            stage.open()
            self.alerts.start()
        self.interruptions.check()
        self.experiment.prepare(stage)
        for name in self.experiment.workers:
            stage.start(name, wait=False)
        for name in self.experiment.workers:
            stage.await_ready(name)
        stage.producer.start()
        stage.wait_until(self._is_steady, f"steady state ({self.experiment.steady_state})")
        stage.wait_until(self.alerts.is_watching, "Prometheus scrapes the daemons")
        stage.snapshot("before")
        stage.recorder.keep_pages("baseline")
        self.alerts.forget()

    def _is_steady(self) -> bool:
        line = self.stage.recorder.last
        workers = line.get("workers", {})
        status = line.get("status", {})
        return (
            len(workers) == len(self.experiment.workers)
            and all(worker.get("ready") == 200 for worker in workers.values())
            and status.get("done", 0) >= STEADY_DONE
            and not status.get("failed")
            and line.get("oldest", 99) < 5
        )

    def _fault(self) -> None:
        try:
            self.experiment.fault(self.stage)
            self._await_alerts()
        finally:
            with suppress(psycopg.Error):  # while a server is down a query may fail
                if "during" not in self.stage.story.snapshots:
                    self.stage.snapshot("during")
                self.stage.recorder.keep_pages("fault")

    def _await_alerts(self) -> None:
        """Keep the fault until the expected alerts fire. If they do not, a later check reports it."""
        with suppress(NotSeen):
            expected = self.experiment.expected_alerts
            self.stage.wait_until(lambda: self.alerts.has_fired(expected), "the expected alerts")

    def _restore(self) -> None:
        """Restore the experiment's own changes, then everything else that can be broken."""
        stage = self.stage
        with self._noting():
            self.experiment.restore(stage)
        with self._noting():
            stage.heal()
            stage.mark("restored", "heal")
            stage.note("healed_at", str(stage.table.value("select clock_timestamp()")))

    def _recover(self) -> None:
        stage = self.stage
        began = stage.story.now()
        healed = stage.story.notes["healed_at"]
        before = list(stage.ledger.entries)

        def caught_up() -> bool:
            return bool(stage.table.value(OPEN_BEFORE, at=healed) == 0) and not stage.not_projected(before)

        stage.wait_until(caught_up, "everything committed before the end of the fault is finished")
        stage.note("recovery_seconds", round(stage.story.now() - began, 2))
        self.experiment.after(stage)

    def _quiesce(self) -> None:
        stage = self.stage
        stage.producer.stop()
        stage.wait_until(stage.is_quiet, "no open event is left")
        stage.watch(1.0)  # one more sample of every page
        stage.recorder.sample()
        stage.recorder.keep_pages("end")
        self.alerts.stop()  # alerts that fire because the lab stops its daemons do not count
        for worker in stage.workers.values():
            if worker.running:
                self.exit_codes[worker.label] = worker.end()

    def _verify(self) -> None:
        stage = self.stage
        stage.snapshot("after")
        documents = [entry.document for entry in stage.ledger.entries]
        tables = TABLES if stage.stream is None else {**TABLES, **OF_THE_LOG}
        collect(self.folder, stage.table.database_url, stage.elastic, stage.index, documents, tables)

    # What goes wrong

    @contextmanager
    def _noting(self, *kinds: type[BaseException]) -> Iterator[None]:
        """Record the exception that ends a phase. With `kinds` only these are caught; others propagate."""
        try:
            yield
        except Interrupted as signal:
            if kinds:
                raise
            # Without its frames: they would keep a half-open connection, and PostgreSQL waits a minute for its password
            # before it drops any database.
            self.interrupted = signal.with_traceback(None)
            self._problem(Problem("interrupted", f"interrupted by {signal}"))
        except Exception as error:
            if kinds and not isinstance(error, kinds):
                raise
            self._problem(problem(error, self.stage.story.phase))
            if self.problems[-1]["kind"] == BROKEN_LAB:
                (self.folder / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")

    def _problem(self, found: Problem) -> None:
        """Only once: a server that is down fails every later step with the same message."""
        if all(known["message"] != found.message for known in self.problems):
            self.problems.append({"kind": found.kind, "phase": self.stage.story.phase, "message": found.message})
            self.say(f"  {found.message}")

    # The end

    def _leave(self) -> None:
        stage = self.stage
        stage.story.end()
        with self._noting():
            if hasattr(stage, "producer"):
                stage.producer.stop()
        with self._noting():
            self.alerts.stop()
        with self._noting():
            self.servers.revive()
        with self._noting():
            stage.close(keep=self.keep)


def new_folder(runs: Path, experiment: Experiment) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return runs / f"{stamp}-{experiment.name}-{uuid.uuid4().hex[:4]}"
