"""The engine Spark without Spark: what tasks report is raised, what is left is submitted again, a stop cancels."""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from outbox.app import part_process
from outbox.reindex.backfill import IndexLost
from outbox.reindex.parallel import PartJob
from outbox.reindex.parts import PartsProgress

JOB = PartJob("backfill", 7, 0.0, 2, "alice")
SETTINGS = {"DATABASE_URL": "postgresql://u:p@localhost/db"}


class FakeSpark:
    """Runs each partition here, one after the other. Keeps what it was asked for."""

    def __init__(self) -> None:
        self.config_given: dict[str, str] = {}
        self.jobs = 0
        self.cancelled: list[str] = []
        self.builder = self.sparkContext = self

    def appName(self, name: str) -> "FakeSpark":  # noqa: N802 - Spark's own name
        return self

    def master(self, url: str) -> "FakeSpark":
        return self.config("master", url)

    def config(self, name: str, value: str) -> "FakeSpark":
        self.config_given[name] = value
        return self

    def getOrCreate(self) -> "FakeSpark":  # noqa: N802
        return self

    def setJobGroup(self, group: str, about: str, **more: Any) -> None:  # noqa: N802
        self.group = group

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.append(group)

    def parallelize(self, items: Any, parts: int) -> Any:
        self.jobs += 1

        def map_partitions(work: Callable[[Iterator[int]], Iterator[Any]]) -> Any:
            return SimpleNamespace(collect=lambda: [said for item in items for said in work(iter([item]))])

        return SimpleNamespace(mapPartitions=map_partitions)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSpark]:
    """In place of pyspark, which only the environment of scripts/spark has. The engine that was imported over it goes
    with it: a later test of this process must find Spark as missing as it is."""
    made = FakeSpark()
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
    assert (len(ran), spark.jobs, spark.config_given["master"]) == (2, 1, "local[2,5]")
    made.tend(PartsProgress(parts=3, open=1, held=1))
    assert spark.jobs == 1, "someone holds it"
    made.tend(PartsProgress(parts=3, open=1, held=0))
    ended(made)
    assert spark.jobs == 2
    made.stop()
    assert spark.cancelled == ["outbox-backfill-7"]


def test_an_error_of_ours_in_an_executor_is_raised_here(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> int:
        raise IndexLost("articles: 404")

    made = engine(monkeypatch, lost, "spark://there:7077")
    made.start(JOB, TABLE)
    ended(made)
    assert spark.config_given["master"] == "spark://there:7077"
    with pytest.raises(IndexLost, match="articles: 404"):
        made.tend(PartsProgress(parts=3, open=3))
