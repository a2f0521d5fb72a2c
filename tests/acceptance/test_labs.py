"""The labs as people run them: the quickest, their reports in a real browser, and everything that goes wrong."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from elasticsearch import Elasticsearch

from labs.mutations import MUTATIONS, mutate
from tests.fixtures.depth import depth
from tests.fixtures.processes import ROOT, RunningProcess, StartProcess
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    pass

QUICKEST, PASSED = depth((["bad_op"], 1), (["--quick"], 3))
StartLabs = Callable[..., RunningProcess]


@pytest.fixture
def labs(start_process: StartProcess, postgres_url: str, elastic_url: str, tmp_path: Path) -> StartLabs:
    """`labs("run", "bad_op")` on this session's servers, its runs in a folder of this test."""

    def start(*arguments: str, alerts: bool = False) -> RunningProcess:
        servers = ["--database-url", postgres_url, "--elastic-url", elastic_url]
        given = [*servers, "--alerts" if alerts else "--no-alerts"] if arguments[0] == "run" else []
        argv = [sys.executable, "-m", "labs", *arguments, *given]
        return start_process(argv, LABS_RUNS=str(tmp_path), PATH=os.environ["PATH"])

    return start


@pytest.fixture(autouse=True)
def nothing_is_left(postgres_url: str, es: Elasticsearch) -> Iterator[None]:
    """Whatever a test does to a lab: no database, no index and no daemon of it stays."""
    yield
    assert left(postgres_url, es) == []


def left(postgres_url: str, es: Elasticsearch) -> list[str]:
    with psycopg.connect(postgres_url) as connection:
        databases = connection.execute("select datname from pg_database where datname ~ '^lab_'").fetchall()
    indexes = es.indices.get(index="lab-*", allow_no_indices=True)
    return [row[0] for row in databases] + list(indexes) + daemons(postgres_url)


def daemons(postgres_url: str) -> list[str]:
    """Daemons of labs on this server: by their index and their database."""
    server = f"@{urlsplit(postgres_url).netloc.rpartition('@')[2]}/lab_"
    running = [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[1:4] == ["-m", "outbox", "run"]]
    return [str(process.pid) for process in running if server in _environment(process).get("DATABASE_URL", "")]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


@pytest.fixture(scope="module")
def quick_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quick")


def test_the_quickest_pass_and_leave_whole_reports(labs: StartLabs, quick_runs: Path) -> None:
    process = labs("run", *QUICKEST, "--operator", "alice", "--json", "--runs", str(quick_runs), alerts=True)
    assert process.wait(300) == 0, process.output
    told = [json.loads(path.read_text()) for path in sorted(quick_runs.glob("*/report.json"))]
    assert [report["verdict"] for report in told] == ["PASS"] * PASSED
    assert {report["operator"] for report in told} == {"alice"}
    for folder in quick_runs.glob("*-*"):
        files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        assert {"report.html", "report.md", "report.json", "reproduce.sh", "MANIFEST.sha256", "ledger.ndjson"} <= files


def until(process: RunningProcess, phase: str) -> None:
    process.wait_until(lambda: any(line.startswith(f"  {phase}") for line in process.lines), f"phase {phase}", 120)


def test_what_a_killed_lab_leaves_is_ended_by_itself_and_removed_by_clean(
    labs: StartLabs, postgres_url: str, elastic_url: str, es: Elasticsearch
) -> None:
    process = labs("run", "bad_op")
    until(process, "fault")
    process.kill()
    eventually(lambda: daemons(postgres_url) == [], what="the daemons ended with their lab")
    assert left(postgres_url, es) != []
    cleaned = labs("clean", "--database-url", postgres_url, "--elastic-url", elastic_url)
    assert cleaned.wait() == 0
    assert "dropped database lab_bad_op" in cleaned.output


@pytest.mark.release("judges the labs and not the program")
def test_a_lab_fails_when_what_it_proves_is_taken_out(labs: StartLabs, tmp_path: Path) -> None:
    """One of five, for its time; `python -m labs.mutations` tries all."""
    (mutation,) = [one for one in MUTATIONS if one.name == "no_version"]
    code = mutate(ROOT, tmp_path / "code", mutation)
    process = labs("run", mutation.lab, "--code", str(code))
    assert process.wait() == 1, process.output
    page = next(tmp_path.glob("*/report.html")).read_text()
    assert "The first event that violates it" in page
