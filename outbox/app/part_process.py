"""Joins what a process needs that works on parts: a local one (`python -m outbox.app.part_process`), or an executor of
another engine. What it does is in `ops`."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from threading import Event, Thread
from typing import Any, Final

import orjson

from outbox.app.desk import stream_mark
from outbox.config import Settings, load_settings
from outbox.policy.redact import redact_dsn
from outbox.ports import Refusal
from outbox.reindex.backfill import BUSY_RATE, NothingToResume
from outbox.reindex.joining import backfill_copier, comparing, pools, rebuild_copier
from outbox.reindex.pacing import JobPace
from outbox.reindex.parallel import PartJob
from outbox.reindex.part_processes import CHECK_SECONDS, told_error
from outbox.reindex.part_table import PostgresParts
from outbox.reindex.part_work import PartCopy, PartWorker
from outbox.reindex.parts import PartsProgress, Work, WorkKind
from outbox.reindex.partwise_verify import PartCompare
from outbox.reindex.rebuild_steps import NotNow, named_owner, new_owner
from outbox.reindex.tables import PostgresBackfills, PostgresRebuilds
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.store.pool import Database
from outbox.store.truth import PostgresTruth

LEASH_SECONDS: Final = 0.5


class ThisProcess:
    """The engine of one process: a thread of the command itself, so that nothing has to be started."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._worker: PartWorker | None = None
        self._error: BaseException | None = None
        self._stopping = Event()

    def start(self, job: PartJob, table: PostgresParts) -> None:
        self._job = job
        self._begin()

    def _begin(self) -> None:
        self._thread = Thread(target=self._work, name="parts", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with part_worker(self._settings, self._job, new_owner()) as worker:
                self._worker = worker
                if not self._stopping.is_set():
                    worker.run()
        except BaseException as error:
            self._error = error

    def tend(self, progress: PartsProgress) -> None:
        if is_working := self._thread.is_alive():
            self._thread.join(CHECK_SECONDS)
        else:
            time.sleep(CHECK_SECONDS)
        if self._error is not None:
            raise self._error
        if not is_working and progress.open > progress.held:  # the lease of a dead process ran out
            self._begin()

    def stop(self) -> None:
        self._stopping.set()
        if self._worker is not None:
            self._worker.end()
        self._thread.join()


@contextmanager
def part_worker(settings: Settings, job: PartJob, owner: str) -> Iterator[PartWorker]:
    """With connections of its own, closed at the end."""
    application = f"outbox {job.kind} part"
    with pools(settings, application) as (database, replica), closing(connect_elastic(settings.elastic)) as elastic:
        if job.kind == WorkKind.VERIFICATION:
            yield _comparing(settings, (database, replica), elastic, job, owner)
        else:
            yield _copying(settings, database, elastic, job, owner)


def _copying(settings: Settings, database: Database, elastic: Elastic, job: PartJob, owner: str) -> PartWorker:
    parts = PostgresParts(database, Work(WorkKind(job.kind), job.id), owner=owner)
    make = _rebuilding if job.kind == WorkKind.REBUILD else _backfilling
    copier, note = make(settings, database, elastic, job, owner)
    stop = Event()
    # Whoever waits for a rate or for a server wakes up.
    return PartWorker(parts, PartCopy(parts, copier, note, stop), stop, wake=copier.ending.set)


def _comparing(
    settings: Settings, databases: tuple[Database, Database], elastic: Elastic, job: PartJob, owner: str
) -> PartWorker:
    database, replica = databases if job.options["replica"] else databases[:1] * 2
    parts, stop = PostgresParts(database, Work(WorkKind(job.kind), job.id), owner=owner), Event()
    busy, mark = PostgresTruth(database, settings.documents).backlog_waits, stream_mark(settings, database)
    compare = PartCompare(
        parts,
        lambda: comparing(settings, database, replica, elastic, mark),
        JobPace(job.rate / job.share, busy, rest=stop.wait),
        job.options["entity_type"],
        job.options["keep"],
        job.options["enough"],
        stop.is_set,
    )
    return PartWorker(parts, compare, stop)


def _rebuilding(settings: Settings, database: Database, elastic: Elastic, job: PartJob, owner: str) -> Any:
    rebuilds = PostgresRebuilds(database, owner=owner)
    rebuild = rebuilds.newest()
    if rebuild is None or rebuild.id != job.id:
        raise NotNow("it is not the newest rebuild any more")
    copier, _ = rebuild_copier(settings, database, elastic, rebuild, job.rate / job.share)

    def note(refusals: Sequence[Refusal]) -> None:
        rebuilds.refused(job.id, refusals, len(refusals))

    return copier, note


def _backfilling(settings: Settings, database: Database, elastic: Elastic, job: PartJob, owner: str) -> Any:
    backfills = PostgresBackfills(database, owner=owner)
    run = backfills.newest()
    if run is None or run.id != job.id:
        raise NothingToResume
    copier = backfill_copier(settings, database, elastic, job.rate / job.share, job.by)
    copier.pace.busy_rate = BUSY_RATE / job.share
    return copier, lambda refusals: backfills.note_refusals(job.id, refusals)


def work_on(told: Mapping[str, Any], slots: Iterator[int]) -> Iterator[dict[str, Any]]:
    """One task, in an executor. What is wrong for all parts is reported and not repeated; a process that dies is
    Spark's to replace."""
    for _ in slots:
        try:
            with _leashed(load_settings(told["environment"]), PartJob(**told["job"])) as worker:
                yield {"parts": worker.run()}
        except Exception as error:
            yield told_error(error)


@contextmanager
def _leashed(settings: Settings, job: PartJob) -> Iterator[PartWorker]:
    """Our parent is Spark's daemon of Python processes, which ends with its executor, and that one with the driver. It
    says SIGHUP, which would kill us in the middle of a page. Held back, the part ends after its page first: nothing is
    written twice, and nobody waits for a lease to run out."""
    parent, over = os.getppid(), Event()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # for all threads that start from here on
    try:
        with part_worker(settings, job, named_owner(os.getpid())) as worker:

            def watch() -> None:
                while not over.wait(LEASH_SECONDS):
                    if os.getppid() != parent:
                        worker.end()
                        return

            Thread(target=watch, name="leash", daemon=True).start()
            yield worker
    finally:
        over.set()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main() -> int:
    """Its job comes by standard input, whose end says that it is no longer wanted."""
    told: Mapping[str, Any] = orjson.loads(sys.stdin.buffer.readline() or b"{}")
    if not told:
        return 0
    try:
        with part_worker(load_settings(told["environment"]), PartJob(**told["job"]), told["owner"]) as worker:
            Thread(target=_watch, args=[worker], name="wanted", daemon=True).start()
            said: dict[str, Any] = {"parts": worker.run()}
    except Exception as error:  # reported to who started this, in words without values
        said = told_error(error)
        said["message"] = redact_dsn(said["message"])
    sys.stdout.buffer.write(orjson.dumps(said))
    sys.stdout.buffer.flush()
    return 0


def _watch(worker: PartWorker) -> None:
    sys.stdin.buffer.read()
    worker.end()


if __name__ == "__main__":
    sys.exit(main())
