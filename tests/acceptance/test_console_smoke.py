"""scripts/smoke against a real installation: it says what it saw, cleans up, and knows a broken one."""

import subprocess
import sys

import psycopg
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
