"""scripts/smoke against a real installation: it says what it saw, cleans up, and knows a broken one."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.console import Served
from tests.fixtures.processes import ROOT, StartProcess, clean_environment

SCRIPT = ROOT / "scripts" / "smoke.py"


def smoke(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=clean_environment(env),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smoke", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_it_walks_from_an_insert_to_a_replay_and_leaves_nothing_behind(
    console: Served,
    connection: psycopg.Connection,
    database: str,
    elastic_url: str,
    index: str,
    es: Elasticsearch,
    start_daemon: StartProcess,
) -> None:
    es.indices.put_settings(index=index, settings={"refresh_interval": "200ms"})
    start_daemon()
    where = {"DATABASE_URL": database, "ELASTIC_URL": elastic_url, "ELASTIC_INDEX": index}
    run = smoke(console.url, **where)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("ok ") == 4
    assert connection.execute("select count(*) from search_outbox_events").fetchone() == (0,)
    es.indices.refresh(index=index)
    assert es.count(index=index)["count"] == 0


def test_a_row_against_a_failing_sink_uses_up_its_attempts(
    postgres_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OUTBOX_TEST_DATABASE_URL", "OUTBOX_TEST_ELASTIC_URL"):
        monkeypatch.delenv(name, raising=False)
    module().try_failing_sink(postgres_url)
    assert "max_attempts_exceeded" in capsys.readouterr().out
