"""parallel: a `backfill` by one process, by two, and by two tasks of Spark, by turns; its start is measured apart.

Spark takes part where its environment is there (`scripts/spark --install` makes .venv-spark)."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from bench.drain import warm_up
from bench.load import make_view
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers

TWO = Threshold("two processes / one", 1.15, 1.5)
SPARK = Threshold("Spark's time / that of two processes", 1.25, 1.1, most=True)
SIZE = 500
ROOT = Path(__file__).parents[1]
SPARK_PYTHON = ROOT / ".venv-spark" / "bin" / "python"
# From the first part that is taken to the last that is done: what is left is start and end.
COPYING = (
    "select extract(epoch from max(finished_at) - min(started_at))::float8, count(*), min(written), max(written)"
    " from search_outbox_rebuild_parts"
)


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, documents: int = 1_000_000, warm: bool = True
) -> BenchmarkResult:
    """`--set`: documents, warm."""
    documents, rounds = (20_000, 1) if smoke else (documents, rounds)
    with_spark = SPARK_PYTHON.exists() and not smoke
    result = BenchmarkResult("parallel", smoke)
    result.settings = {"documents": documents, "bytes per document": SIZE, "cores": os.cpu_count()}
    with stack.database() as url, stack.index() as index:
        if warm and not smoke:
            warm_up(stack, url, index, SIZE)
        make_view(url, documents, SIZE)
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            one = _measured(stack, url, index, documents, result)
            two = _command(stack, url, index, documents, "2")
            copying = _copying(url, result)
            result.add("one process", "docs/s", documents / one)
            result.add("two processes", "docs/s", documents / two)
            result.add("two / one", "", one / two)
            if with_spark:
                _spark(stack, url, index, documents, result, copying)
    result.judge(TWO, result.median("two / one"))
    if with_spark:
        result.judge(SPARK, result.median("Spark / two"))
    else:
        result.notes.append("without Spark: scripts/spark --install makes its environment")
    return result


def _measured(stack: BenchmarkServers, url: str, index: str, documents: int, result: BenchmarkResult) -> float:
    """By one process, with what each part of the way costs: the constants of bench/scaling_parts.py."""
    before, spent = stack.cpu_seconds(), _children()
    took = _command(stack, url, index, documents, "1")
    result.add("CPU of the command", "us/document", (_children() - spent) / documents * 1e6)
    for name, seconds in stack.cpu_seconds().items():
        result.add(f"CPU of {name}", "us/document", (seconds - before[name]) / documents * 1e6)
    return took


def _children() -> float:
    """CPU of commands that have ended, and of the processes that they have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _spark(
    stack: BenchmarkServers, url: str, index: str, documents: int, result: BenchmarkResult, local: float
) -> None:
    whole = _command(stack, url, index, documents, "2", "--engine", "spark")
    copying = _copying(url, None)
    result.add("Spark, copying", "docs/s", documents / copying)
    result.add("Spark, start and end", "s", whole - copying)
    result.add("Spark / two", "", copying / local)


def _copying(url: str, result: BenchmarkResult | None) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute(COPYING).fetchone()
    assert row is not None
    if result is not None:
        result.add("parts", "", float(row[1]))
        result.add("largest part / smallest", "", row[3] / max(1, row[2]))
    return float(row[0])


def _command(stack: BenchmarkServers, url: str, index: str, documents: int, processes: str, *more: str) -> float:
    """The whole command, including its start, into an empty index; every document must be written once."""
    stack.fresh_index(index)
    stack.quiet()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTBOX_", "ELASTIC_", "DATABASE_URL"))}
    environ = {**kept, "DATABASE_URL": url, "ELASTIC_URL": stack.elastic_url, "ELASTIC_INDEX": index}
    environ |= {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    python = str(SPARK_PYTHON) if more else sys.executable
    command = [python, "-m", "outbox", "backfill", "--parallel", processes, *more]
    began = time.monotonic()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    took = time.monotonic() - began
    stats = stack.client().indices.stats(index=index, metric="indexing")
    written = stats["_all"]["primaries"]["indexing"]["index_total"]
    if written != documents:
        raise RuntimeError(f"{written:,} writes for {documents:,} documents")
    return took
