"""Runs the chosen experiments one after another on one pair of servers and reports each. Returns the exit code."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from labs import report
from labs.errors import Interrupted
from labs.experiment import Experiment
from labs.record import Record
from labs.report import gallery
from labs.runner import Run, new_folder
from labs.servers import Servers
from labs.signals import Interruptions
from labs.verdict import FAIL, INCONCLUSIVE, LabVerdict, judge


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of the command line."""

    runs: Path
    operator: str = ""
    seed: int = 1
    keep: bool = False
    database_url: str | None = None
    elastic_url: str | None = None
    watch_alerts: bool = True
    code: Path | None = None
    release: str = "elasticsearch"


@contextmanager
def _leaving(servers: Servers, interruptions: Interruptions) -> Iterator[Servers]:
    """The start may be interrupted, the stop may not."""
    with ExitStack() as stack:
        stack.enter_context(servers)
        try:
            yield servers
        finally:
            with interruptions.shield():
                stack.close()


@dataclass
class Session:
    wishes: RunOptions
    outcomes: list[tuple[Record, LabVerdict]] = field(default_factory=list)

    def run(self, experiments: Sequence[Experiment]) -> int:
        """The exit code: 0 all passed, 1 one failed, 3 one was inconclusive, 128 + n ended by a signal."""
        wishes = self.wishes
        with Interruptions() as interruptions:
            try:
                given = wishes.database_url, wishes.elastic_url
                wanted = Servers(*given, release=wishes.release, say=say)
                with _leaving(wanted, interruptions) as servers:
                    for experiment in experiments:
                        self._one(experiment, servers, interruptions)
                    if wishes.keep:
                        self._wait(servers)
            except Interrupted as signal:
                say(f"labs: ended by {signal}; everything was restored")
                return signal.exit_code
        return self._code()

    def _one(self, experiment: Experiment, servers: Servers, interruptions: Interruptions) -> None:
        wishes = self.wishes
        say(f"{experiment.name}: {experiment.title} (about {experiment.seconds} s)")
        run = Run(
            experiment,
            servers,
            new_folder(wishes.runs, experiment),
            interruptions,
            say,
            operator=wishes.operator,
            seed=wishes.seed,
            keep=wishes.keep,
            watch_alerts=wishes.watch_alerts,
            code=wishes.code,
        )
        try:
            run.run()
        finally:
            with interruptions.shield():
                self._report(run)
        if run.interrupted is not None:
            raise run.interrupted
        interruptions.check()

    def _report(self, run: Run) -> None:
        record = Record(run.folder)
        verdict = judge(record, run.experiment)
        page = report.write(record, run.experiment, verdict)
        gallery.write(self.wishes.runs)
        self.outcomes.append((record, verdict))
        say(f"  {verdict.result}: {verdict.sentence}\n  {page}")

    def _code(self) -> int:
        results = [verdict.result for _, verdict in self.outcomes]
        return 1 if FAIL in results else 3 if INCONCLUSIVE in results else 0

    def _wait(self, servers: Servers) -> None:
        """Embedded servers end with this command: it waits for Ctrl-C."""
        names = ", ".join(sorted(servers.kept))
        say(f"labs: kept {names}")
        if all(servers.given):
            say("labs: remove them with `python -m labs clean`")
            return
        say(f"  DATABASE_URL={servers.database_url} (its databases are named above)")
        say(f"  ELASTIC_URL={servers.elastic_url}\nlabs: Ctrl-C stops the servers and removes everything")
        threading.Event().wait()
