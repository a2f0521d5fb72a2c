"""The engine Spark without Spark: what tasks report is raised, what is left is submitted again, a stop cancels."""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from outbox.app import part_process
from outbox.errors import OutboxError
from outbox.reindex.backfill import IndexLost
from outbox.reindex.parallel import PartJob
from outbox.reindex.parts import PartsProgress

JOB = PartJob("backfill", 7, 0.0, 2, "alice")
SETTINGS = {"DATABASE_URL": "postgresql://u:p@localhost/db"}


class FakeSpark(MagicMock):
    """Runs each partition here, one after the other."""

    def parallelize(self, items: Any, parts: int) -> Any:
        def map_partitions(work: Callable[[Iterator[int]], Iterator[Any]]) -> Any:
            return SimpleNamespace(collect=lambda: [said for item in items for said in work(iter([item]))])

        self.jobs(parts)
        return SimpleNamespace(mapPartitions=map_partitions)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSpark]:
    """In place of pyspark, which only the environment of scripts/spark has. The engine that was imported over it goes
    with it: a later test of this process must find Spark as missing as it is."""
    made = FakeSpark()
    made.builder = made.sparkContext = made
    for name in ("appName", "master", "config", "getOrCreate"):
        getattr(made, name).return_value = made
    module = ModuleType("pyspark.sql")
    module.SparkSession = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    monkeypatch.setitem(sys.modules, "pyspark.sql", module)
    monkeypatch.delitem(sys.modules, "outbox.reindex.spark", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    yield made
    sys.modules.pop("outbox.reindex.spark", None)


def engine(monkeypatch: pytest.MonkeyPatch, run: Callable[[], int], master: str | None = None) -> Any:
    spark_parts = importlib.import_module("outbox.reindex.spark")

    @contextmanager
    def worker(settings: Any, job: PartJob, owner: str) -> Iterator[Any]:
        assert (settings.database.dsn, job) == (SETTINGS["DATABASE_URL"], JOB)
        yield SimpleNamespace(run=run)

    monkeypatch.setattr(part_process, "part_worker", worker)
    return spark_parts.SparkParts(SETTINGS, 2, master, part_process.work_on)


def ended(made: Any) -> None:
    ends = time.monotonic() + 30
    while made._thread.is_alive() and time.monotonic() < ends:
        time.sleep(0.01)


TABLE = SimpleNamespace(numbers=lambda: [1, 2, 3])


def test_tasks_are_as_many_as_asked_for_and_what_is_left_is_submitted_again(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    made = engine(monkeypatch, lambda: ran.append(1) or 1)
    made.start(JOB, TABLE)
    ended(made)
    assert (len(ran), spark.jobs.call_count) == (2, 1)
    spark.master.assert_called_once_with("local[2,5]")
    made.tend(PartsProgress(parts=3, open=1, held=1))
    assert spark.jobs.call_count == 1, "someone holds it"
    made.tend(PartsProgress(parts=3, open=1, held=0))
    ended(made)
    assert spark.jobs.call_count == 2
    made.stop()
    spark.cancelJobGroup.assert_called_once_with("outbox-backfill-7")


def test_an_error_of_ours_in_an_executor_is_raised_here(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> int:
        raise IndexLost("articles: 404")

    made = engine(monkeypatch, lost, "spark://there:7077")
    made.start(JOB, TABLE)
    ended(made)
    spark.master.assert_called_once_with("spark://there:7077")
    with pytest.raises(IndexLost, match="articles: 404"):
        made.tend(PartsProgress(parts=3, open=3))


def test_spark_that_fails_again_and_again_ends_it(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(monkeypatch, lambda: 1)
    monkeypatch.setattr(spark, "parallelize", lambda *_: (_ for _ in ()).throw(RuntimeError("executors lost")))
    made.start(JOB, TABLE)

    def follow() -> None:
        for _ in range(10):
            ended(made)
            made.tend(PartsProgress(parts=3, open=3))

    with pytest.raises(OutboxError, match=r"three times in a row.*executors lost"):
        follow()
