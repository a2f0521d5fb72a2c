"""Joins the annex of reindexing to the house: for commands with a pool and a client of their own, for the console over
its own; with what is on its way in Kafka, and with the engines that work on parts."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from outbox.app.desk import stream_mark
from outbox.app.part_process import ThisProcess, work_on
from outbox.config import Settings
from outbox.config.load import as_environment
from outbox.errors import OutboxError
from outbox.reindex import joining
from outbox.reindex.joining import Reindexing, pools, replica_remark
from outbox.reindex.parallel import LOCAL, PartEngine, Spread
from outbox.reindex.part_processes import LocalProcesses
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.store.pool import Database, connect


class SparkMissing(OutboxError):
    """pyspark is not installed. Run `pip install 'outbox-projector[spark]'` here and in the executors, with Java 17 or
    later; or leave out --engine for processes on this machine."""

    exit_code = 78


@contextmanager
def open_reindexing(settings: Settings) -> Iterator[Reindexing]:
    """Closed at the end. Raises DatabaseDown at once where nobody answers."""
    application = "outbox verify"
    connect(settings.database.dsn, application=application).close()
    with pools(settings, application) as (database, replica), closing(connect_elastic(settings.elastic)) as elastic:
        remark = partial(replica_remark, settings, database, application)
        yield join(settings, database, elastic, replica, remark)


def join(
    settings: Settings,
    database: Database,
    elastic: Elastic,
    replica: Database | None = None,
    remark_of: Callable[[], str] = lambda: "",
) -> Reindexing:
    mark = stream_mark(settings, database)
    return joining.join(settings, database, elastic, mark, partial(_engine, settings), replica, remark_of)


def _engine(settings: Settings, spread: Spread, at_once: int) -> PartEngine:
    if spread.engine == LOCAL:
        return ThisProcess(settings) if at_once == 1 else LocalProcesses(as_environment(settings), at_once)
    try:
        from outbox.reindex.spark import SparkParts  # noqa: PLC0415 - 0.4 s, and an extra
    except ModuleNotFoundError as missing:
        raise SparkMissing(f"the module {missing.name}") from missing
    return SparkParts(as_environment(settings), at_once, spread.master, work_on)
