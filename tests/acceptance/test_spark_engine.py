"""`--engine spark` with real Spark: on this machine, and on a master with two workers; executors and driver are killed.

Needs the environment of scripts/spark, which runs this."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.commands import Outbox
from tests.fixtures.failures import value
from tests.fixtures.joined import fill_skewed
from tests.fixtures.processes import ROOT, RunningProcess, StartProcess, find_free_port
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.long]
SIZE = 40_000
KILLS = int(os.environ.get("OUTBOX_TEST_SPARK_KILLS", "10"))
PYTHON = ROOT / ".venv-spark" / "bin" / "python"
WRITTEN = "select coalesce(sum(written), 0) from search_outbox_rebuild_parts"
CONF = "spark.executor.memory 512m\nspark.driver.memory 512m\nspark.driver.bindAddress 127.0.0.1\n"


@pytest.fixture
def table(connection: psycopg.Connection) -> psycopg.Connection:
    fill_skewed(connection, SIZE)
    return connection


@pytest.fixture
def spark_settings(tmp_path: Path, servers: dict[str, str | None]) -> dict[str, str | None]:
    assert PYTHON.exists(), "run scripts/spark, which makes the environment"
    (tmp_path / "spark-defaults.conf").write_text(CONF)
    more = {"SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    return {**servers, **more, "PYSPARK_PYTHON": str(PYTHON)}


@pytest.fixture
def cluster(tmp_path: Path, spark_settings: dict[str, str | None], start_process: StartProcess) -> Iterator["Cluster"]:
    made = Cluster(tmp_path, spark_settings, start_process)
    yield made
    made.stop()


class Cluster:
    """A standalone master and two workers with a core each."""

    def __init__(self, folder: Path, env: dict[str, str | None], start: StartProcess) -> None:
        home = next((PYTHON.parents[1] / "lib").glob("python*")) / "site-packages" / "pyspark"
        run = str(home / "bin" / "spark-class")
        port = find_free_port()
        self.master = f"spark://127.0.0.1:{port}"
        kind = "org.apache.spark.deploy"
        more = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self.processes = [start([run, f"{kind}.master.Master", *more], **env)]
        self.processes[0].wait_for_line("I have been elected leader", within=180)
        for number in (1, 2):
            place = [
                "--host",
                "127.0.0.1",
                "-c",
                "1",
                "-m",
                "1g",
                "-d",
                str(folder / f"w{number}"),
                "--webui-port",
                "0",
            ]
            self.processes.append(start([run, f"{kind}.worker.Worker", *place, self.master], **env))
        for worker in self.processes[1:]:
            worker.wait_for_line("Successfully registered with master", within=180)

    def executors(self) -> list[psutil.Process]:
        """Children of our workers that run tasks."""
        found: list[psutil.Process] = []
        for worker in self.processes[1:]:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(worker.pid).children(recursive=True)
        return [each for each in found if _is_executor(each)]

    def stop(self) -> None:
        for worker in self.processes[1:]:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(worker.pid).children(recursive=True):
                    child.kill()


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any("ExecutorBackend" in word for word in process.cmdline())
    return False


def largest_part(table: psycopg.Connection) -> int:
    return value(table, "select max(written + newer + refused) from search_outbox_rebuild_parts")


def writes(es: Elasticsearch, index: str) -> int:
    return int(es.indices.stats(index=index, metric="indexing")["_all"]["primaries"]["indexing"]["index_total"])


def is_right(table: psycopg.Connection, es: Elasticsearch, outbox: Outbox, index: str, kills: int) -> None:
    assert value(table, "select written from search_outbox_backfills order by id desc limit 1") == SIZE
    es.indices.refresh(index=index)
    assert es.count(index=index)["count"] == SIZE
    twice = writes(es, index) - SIZE
    print(f"{kills} kills, {twice:,} documents written twice, largest part {largest_part(table):,}")
    assert 0 <= twice <= kills * largest_part(table)
    assert outbox("verify", "--rate", "0").code == 0


Backfill = Callable[..., RunningProcess]


@pytest.fixture
def backfill(spark_settings: dict[str, str | None], start_process: StartProcess) -> Backfill:
    def start(*more: str) -> RunningProcess:
        command = [str(PYTHON), "-m", "outbox", "backfill", "--engine", "spark", "--parallel", "2", *more]
        return start_process(command, **spark_settings)

    return start


def test_under_spark_submit_the_master_is_its_own_business(
    table: psycopg.Connection,
    spark_settings: dict[str, str | None],
    start_process: StartProcess,
    es: Elasticsearch,
    outbox: Outbox,
    index: str,
    tmp_path: Path,
) -> None:
    """As docs/reindexing.md says."""
    job = tmp_path / "outbox_job.py"
    job.write_text("from outbox.cli import main; main()\n")
    submit = [str(PYTHON.with_name("spark-submit")), "--master", "local[2]", str(job)]
    running = start_process([*submit, "backfill", "--engine", "spark", "--parallel", "2"], **spark_settings)
    assert running.wait(600) == 0, running.output
    is_right(table, es, outbox, index, 0)


def more_pages(table: psycopg.Connection, running: RunningProcess) -> None:
    """Some pages more than now, or its end."""
    before = value(table, WRITTEN)
    eventually(lambda: value(table, WRITTEN) > before or running.returncode is not None, within=300, what="pages")


def test_killed_executors_lose_nothing_and_repeat_a_part_at_most(
    table: psycopg.Connection,
    backfill: Backfill,
    cluster: Cluster,
    es: Elasticsearch,
    outbox: Outbox,
    index: str,
) -> None:
    chance, kills = random.Random(24), 0
    running = backfill("--master", cluster.master, "--rate", "1500")
    while running.returncode is None and kills < KILLS:
        more_pages(table, running)
        time.sleep(chance.uniform(0, 1.0))
        if executors := cluster.executors():
            with suppress(psutil.NoSuchProcess):
                chance.choice(executors).kill()
                kills += 1
    assert running.wait(900) == 0, running.output
    assert kills == KILLS, running.output
    is_right(table, es, outbox, index, kills)


def test_a_killed_driver_loses_nothing_and_resume_goes_on(
    table: psycopg.Connection,
    backfill: Backfill,
    cluster: Cluster,
    es: Elasticsearch,
    outbox: Outbox,
    index: str,
) -> None:
    chance, kills = random.Random(24), 0
    running = backfill("--master", cluster.master, "--rate", "1000")
    while running.returncode is None and kills < KILLS:
        more_pages(table, running)
        time.sleep(chance.uniform(0, 1.0))
        if running.returncode is None:
            os.kill(running.pid, signal.SIGKILL)
            running.wait()
            kills += 1
            running = backfill("--resume", "--master", cluster.master, "--rate", "1000")
    assert running.wait(900) == 0, running.output
    assert kills == KILLS, running.output
    is_right(table, es, outbox, index, kills)


def test_on_this_machine_every_document_is_written_once(
    table: psycopg.Connection, backfill: Backfill, es: Elasticsearch, outbox: Outbox, index: str
) -> None:
    running = backfill()
    assert running.wait(600) == 0, running.output
    is_right(table, es, outbox, index, 0)
