"""Every benchmark lives: one small run of each on the servers of the tests. The figures mean nothing here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.__main__ import MORE, NAMES
from outbox.embedded.products import release_of
from tests.fixtures.servers import PRODUCT

ROOT = Path(__file__).parents[2]
# peers installs PGSync and redis from outside, profile needs to trace a process, the matrix is nine times the drain,
# products starts one more server, kafka three.
ELSEWHERE = {"peers", "profile", "drain_matrix", "products", "kafka"}
HERE = [name for name in NAMES + MORE if name not in ELSEWHERE]
AT_ONCE = 4  # processes, each of some benchmarks: they mostly wait, and nothing is measured
Run = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, postgres_url: str, elastic_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Path, Future[Run]]]]:
    """Those that were asked for."""
    environ = {**os.environ, "OUTBOX_TEST_DATABASE_URL": postgres_url, "OUTBOX_TEST_ELASTIC_URL": elastic_url}
    environ["PYTHONPATH"] = str(ROOT)
    wanted = [name for name in HERE if any(f"[{name}]" in item.name for item in request.session.items)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        parts = [part for first in range(AT_ONCE) if (part := wanted[first::AT_ONCE])]
        folders = [tmp_path_factory.mktemp("bench") for _ in parts]  # one each: a benchmark counts in its daemon's log
        futures = [pool.submit(smoke, part, folder, environ) for part, folder in zip(parts, folders, strict=True)]
        yield {
            name: (folder, future)
            for part, folder, future in zip(parts, folders, futures, strict=True)
            for name in part
        }


def smoke(names: list[str], folder: Path, environ: dict[str, str]) -> Run:
    command = [sys.executable, "-m", "bench", *names, "--smoke"]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False, timeout=500)


@pytest.mark.release("a benchmark proves nothing about the program, and takes a server of its own")
@pytest.mark.parametrize("name", HERE)
def test_a_benchmark_runs_small_and_writes_what_it_found(name: str, runs: dict[str, tuple[Path, Future[Run]]]) -> None:
    folder, future = runs[name]
    ran = future.result()
    assert ran.returncode == 0, ran.stderr[-3_000:]
    (file,) = (folder / "build" / "bench").glob(f"{name}-smoke-*.json")
    found = json.loads(file.read_text())
    assert found["smoke"]
    assert found["bars"]
    assert all(series["values"] for series in found["series"])
    product = release_of(os.environ.get(PRODUCT) or "elasticsearch").product.name
    assert {"python", "postgresql", product} <= set(found["versions"])
