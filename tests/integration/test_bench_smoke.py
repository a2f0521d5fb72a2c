"""Every benchmark lives: one small run of each on the servers of the tests. The figures mean nothing here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import MORE, NAMES

ROOT = Path(__file__).parents[2]
# peers installs PGSync and redis from outside, profile needs to trace a process, the matrix is nine times the drain.
ELSEWHERE = {"peers", "profile", "drain_matrix"}


@pytest.mark.parametrize("name", [name for name in NAMES + MORE if name not in ELSEWHERE])
def test_a_benchmark_runs_small_and_writes_what_it_found(
    name: str, postgres_url: str, elastic_url: str, tmp_path: Path
) -> None:
    environ = {**os.environ, "OUTBOX_TEST_DATABASE_URL": postgres_url, "OUTBOX_TEST_ELASTIC_URL": elastic_url}
    ran = subprocess.run(
        [sys.executable, "-m", "bench", name, "--smoke"],
        env={**environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]
    (file,) = (tmp_path / "build" / "bench").glob(f"{name}-smoke-*.json")
    found = json.loads(file.read_text())
    assert found["smoke"]
    assert found["bars"]
    assert all(series["values"] for series in found["series"])
    assert {"python", "postgresql", "elasticsearch"} <= set(found["versions"])


def test_an_unknown_benchmark_is_refused_before_a_server_starts() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "nonsense"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 2
    assert "unknown: nonsense" in ran.stderr.replace("\n", " ")
