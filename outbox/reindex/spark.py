"""Parts on Apache Spark: the same work with our own sink in the executors. Needs the extra `spark`.

Spark places the tasks and repeats them; the table of parts says what is left. A task takes one part after the other, as
a local process does: a task of its own for each part cost 1 s more (two busy cores), a third of the part itself.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, Final

from pyspark.sql import SparkSession

from outbox.errors import OutboxError
from outbox.policy.redact import redact_dsn
from outbox.reindex.parallel import PartJob
from outbox.reindex.part_processes import CHECK_SECONDS, reported_error
from outbox.reindex.part_table import PostgresParts
from outbox.reindex.parts import PartsProgress

# A task fails when its process is killed: each may be killed four times before the job ends. Local mode repeats no task
# by default.
TASK_FAILURES: Final = 5
Work = Callable[[Mapping[str, Any], Iterator[int]], Iterator[dict[str, Any]]]  # one task, in an executor
MOST_JOBS: Final = 3  # in a row without progress
# Progress is ours to show; under spark-submit the UI is Spark's own business.
QUIET: Final[Mapping[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


class SparkFailed(OutboxError):
    """Spark did not start, or its job failed three times in a row. It needs Java 17 or later (`java -version`), a
    master that answers, and executors with this package (docs/reindexing.md). Fix that, or leave out --engine for
    processes on this machine, then continue: rebuild and backfill with `--resume`, verify and repair by running them
    again."""


class SparkParts:
    """The engine. The driver is the command itself; its session stays for a second round of parts."""

    def __init__(self, environment: Mapping[str, str], at_once: int, master: str | None, work_on: Work) -> None:
        self._environment = dict(environment)
        self._at_once, self._master, self._work_on = at_once, master, work_on
        self._session: SparkSession | None = None
        self._thread: Thread | None = None
        self._ended: list[Sequence[Mapping[str, Any]] | Exception] = []
        self._jobs, self._done = 0, -1

    def start(self, job: PartJob, table: PostgresParts) -> None:
        self._job, self._table = job, table
        try:
            self._session = _session(self._master, self._at_once)
        except Exception as error:  # no Java, no master: several kinds
            raise SparkFailed(_words(error)) from error
        self._submit()

    def tend(self, progress: PartsProgress) -> None:
        time.sleep(CHECK_SECONDS)
        if progress.done > self._done:  # a comparison that begins again is no progress
            self._done, self._jobs = progress.done, 0
        if self._thread is not None and self._thread.is_alive():
            return
        for said in self._ended:
            _raise_reported(said, give_up=self._jobs >= MOST_JOBS)
        if (
            progress.open > progress.held
        ):  # executors were lost, and a lease had not run out when their tasks began again
            self._submit()

    def stop(self) -> None:
        if self._session is not None and self._thread is not None:
            with suppress(Exception):  # Spark itself has ended: then so have its jobs
                self._session.sparkContext.cancelJobGroup(self._group)
            self._thread.join(60)

    @property
    def _group(self) -> str:
        return f"outbox-{self._job.kind}-{self._job.id}"

    def _submit(self) -> None:
        assert self._session is not None
        context, tasks = self._session.sparkContext, min(self._at_once, max(1, len(self._table.numbers())))
        told = {"environment": self._environment, "job": self._job._asdict()}
        self._ended, self._jobs = [], self._jobs + 1

        def run() -> None:
            context.setJobGroup(self._group, "parts of one outbox command", interruptOnCancel=True)
            try:
                slots = context.parallelize(range(tasks), tasks)
                self._ended.append(slots.mapPartitions(partial(self._work_on, told)).collect())
            except Exception as error:  # Java's errors come as several kinds; the table says what is left
                self._ended.append(error)

        self._thread = Thread(target=run, name="spark-job", daemon=True)
        self._thread.start()


def _session(master: str | None, at_once: int) -> SparkSession:
    """Under spark-submit the master is Spark's own business; otherwise this machine, unless one is named."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("outbox")
    if master is not None:
        builder = builder.master(master)
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(f"local[{at_once},{TASK_FAILURES}]").config("spark.ui.enabled", "false")
    for name, value in QUIET.items():
        builder = builder.config(name, value)
    return builder.config("spark.task.maxFailures", str(TASK_FAILURES)).getOrCreate()


def _raise_reported(said: Sequence[Mapping[str, Any]] | Exception, *, give_up: bool) -> None:
    if isinstance(said, Exception):
        if give_up:
            raise SparkFailed(_words(said)) from said
        return
    for each in said:
        if each.get("error"):
            raise reported_error(each)


def _words(error: Exception) -> str:
    """Java's errors name the call first, then the cause, then a stack of calls."""
    return redact_dsn(" ".join(str(error).split("\n")[:2])[:300])
