"""parallel: a `rebuild` by one process, by two, and by two tasks of Spark, by turns: copied, compared, swapped.

Spark takes part where its environment is there (`scripts/spark --install` makes .venv-spark); its start is measured
apart. The CPU of copying by one process gives the constants of bench/scaling_parts.py."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import psycopg
from psycopg.rows import dict_row

from bench.drain import warm_up
from bench.load import make_view
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers, tree_cpu

TWO = Threshold("two processes / one", 1.15, 1.5)
SPARK = Threshold("Spark's time / that of two processes", 1.25, 1.1, most=True)
SIZE = 500
WARM_DOCUMENTS = 50_000  # by one process, so that the first side does not find a colder server than the others
CHECK_SECONDS = 0.2
LOG = Path("build/bench/parallel.log")
ROOT = Path(__file__).parents[1]
SPARK_PYTHON = ROOT / ".venv-spark" / "bin" / "python"
SIDES = {"one process": ("1",), "two processes": ("2",), "Spark": ("2", "--engine", "spark")}
# From the first part that is taken, where there are any: what was before is the start.
TIMES = """
select extract(epoch from v.started_at - coalesce(p.began, r.started_at))::float8 as copying,
       extract(epoch from v.finished_at - v.started_at)::float8 as comparing, r.new_index, r.written,
       p.parts, p.largest::float8 / greatest(p.smallest, 1) as uneven
  from search_outbox_rebuilds r join search_outbox_verifications v on v.rebuild_id = r.id
 cross join lateral (
    select min(started_at) as began, count(*) as parts, max(written) as largest, min(written) as smallest
      from search_outbox_rebuild_parts where work = 'rebuild' and work_id = r.id) p
 order by r.id desc, v.id desc limit 1
"""
COMPARES = "select from search_outbox_rebuilds where status = 'running' and step = 'verifying'"


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, documents: int = 1_000_000, warm: bool = True
) -> BenchmarkResult:
    """`--set`: documents, warm."""
    documents, rounds = (20_000, 1) if smoke else (documents, rounds)
    sides = [name for name in SIDES if name != "Spark" or (SPARK_PYTHON.exists() and not smoke)]
    result = BenchmarkResult("parallel", smoke)
    result.settings = {"documents": documents, "bytes per document": SIZE, "cores": os.cpu_count()}
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with stack.database() as url, stack.index() as index:
        bench = Rebuilds(stack, url, f"{index}-alias", result)
        if warm and not smoke:
            warm_up(stack, url, index, SIZE)
        with bench.alias():
            if warm and not smoke:
                make_view(url, WARM_DOCUMENTS, SIZE)
                bench.rebuild("one process", WARM_DOCUMENTS)
            make_view(url, documents, SIZE)
            for number in range(rounds):
                progress(f"round {number + 1} of {rounds}")
                for name in sides if number % 2 == 0 else reversed(sides):
                    bench.measure(name, documents)
    result.add("two / one", "", result.median("two processes") / result.median("one process"))
    result.judge(TWO, result.median("two / one"))
    if "Spark" in sides:
        result.add("Spark / two", "", result.median("Spark: at work") / result.median("two processes: at work"))
        result.judge(SPARK, result.median("Spark / two"))
    else:
        result.notes.append("without Spark: scripts/spark --install makes its environment")
    return result


@dataclass(slots=True)
class Rebuilds:
    stack: BenchmarkServers
    url: str
    target: str
    result: BenchmarkResult

    @contextmanager
    def alias(self) -> Iterator[None]:
        """An alias of an empty index, as `outbox index create` makes it: a rebuild swaps it."""
        client = self.stack.client()
        self.stack.fresh_index(f"{self.target}-v1")
        client.indices.put_alias(index=f"{self.target}-v1", name=self.target)
        try:
            yield
        finally:
            for name in client.indices.get(index=f"{self.target}-v*"):
                client.indices.delete(index=name)
                client.options(ignore_status=404).indices.delete_index_template(name=f"outbox-rebuild-{name}")

    def measure(self, side: str, documents: int) -> None:
        took, times, cpu = self.rebuild(side, documents)
        add, work = self.result.add, times["copying"] + times["comparing"]
        add(side, "docs/s", documents / took)
        add(f"{side}: copying", "docs/s", documents / times["copying"])
        add(f"{side}: comparing", "docs/s", documents / times["comparing"])
        add(f"{side}: at work", "s", work)
        add(f"{side}: start and end", "s", took - work)
        for name, seconds in cpu.items():
            add(f"{side}: CPU of {name}, copying", "us/document", seconds / documents * 1e6)
        if times["parts"]:
            add(f"{side}: largest part / smallest", "", times["uneven"])

    def rebuild(self, side: str, documents: int) -> tuple[float, dict[str, Any], dict[str, float]]:
        """The whole command with its start, its times, and the CPU of copying. The old index is removed at the end."""
        self.stack.quiet()
        before, began = self.stack.cpu_seconds(), time.monotonic()
        with LOG.open("wb") as log, self._command(side, log, "--rate", "0", "--parallel", *SIDES[side]) as command:
            cpu = self._cpu_of_copying(command, before)
        took = time.monotonic() - began
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            times = connection.execute(TIMES).fetchone()
        if command.returncode or times is None:
            raise RuntimeError(LOG.read_text()[-2_000:])
        stats = self.stack.client().indices.stats(index=times["new_index"], metric="indexing")
        writes = stats["_all"]["primaries"]["indexing"]["index_total"]
        if writes != documents:
            raise RuntimeError(f"{writes:,} writes for {documents:,} documents")
        with LOG.open("wb") as log, self._command(side, log, "--finish"):
            pass
        return took, times, cpu

    def _cpu_of_copying(self, command: subprocess.Popen[bytes], before: Mapping[str, float]) -> dict[str, float]:
        """Until it begins to compare."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            while command.poll() is None:
                if connection.execute(COMPARES).fetchone() is not None:
                    spent = {name: now - before[name] for name, now in self.stack.cpu_seconds().items()}
                    return {**spent, "the command": tree_cpu([psutil.Process(command.pid)])}
                time.sleep(CHECK_SECONDS)
        return {}

    def _command(self, side: str, log: IO[bytes], *options: str) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTBOX_", "ELASTIC_", "DATABASE_URL"))}
        environ = {**kept, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "DATABASE_URL": self.url}
        environ |= {"ELASTIC_URL": self.stack.elastic_url, "ELASTIC_INDEX": self.target}
        python = str(SPARK_PYTHON) if "spark" in options else sys.executable
        return subprocess.Popen(
            [python, "-m", "outbox", "rebuild", "--yes", *options], env=environ, stdout=log, stderr=log
        )
