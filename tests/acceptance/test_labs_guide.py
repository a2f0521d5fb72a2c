"""labs/GUIDE.md by hand: every command of it, in one shell, in order; and the guide's script names."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.pages import blocks_of
from tests.fixtures.processes import ROOT, RunningProcess, StartProcess, clean_environment

GUIDE = ROOT / "labs" / "GUIDE.md"
BLOCKS = blocks_of(GUIDE)
WITHIN = 280.0
# Failing commands are written down and the rest goes on, as when a person types.
HEAD = 'trap \'echo "$?:$BASH_COMMAND" >>"$FAILURES"\' ERR\nset -o pipefail -o errtrace\n'
RUN_SQL = """\
import os, sys, psycopg
url = os.environ["DATABASE_URL"].replace("postgresql+psycopg", "postgresql", 1)
with psycopg.connect(url, autocommit=True) as connection:
    cursor = connection.execute(open(sys.argv[1], "rb").read())
    while True:
        for row in cursor.fetchall() if cursor.description else []:
            print(*row)
        if not cursor.nextset():
            break
"""


def as_typed_here(text: str, addresses: dict[str, str]) -> str:
    """The guide's addresses and amounts are those of a person's machine; these are this test's."""
    for name, value in addresses.items():
        assert name in GUIDE.read_text(), f"{name} is no longer in the guide"
        text = text.replace(name, value)
    return text


def script(folder: Path, addresses: dict[str, str]) -> str:
    parts = [HEAD]
    (folder / "run_sql.py").write_text(RUN_SQL)
    for number, block in enumerate(BLOCKS):
        parts.append(f"echo '=== {number} {block.kind} {block.needs}'")
        if block.kind == "sql":
            (folder / f"{number}.sql").write_text(block.body)
            parts.append(f"python {folder}/run_sql.py {folder}/{number}.sql")
        elif not block.needs:
            parts.append(as_typed_here(block.body, addresses))
    return "\n".join(parts)


def run(text: str, folder: Path) -> tuple[str, str]:
    """Output and failures; whatever the guide left running is ended with its session."""
    (folder / "failures").write_text("")
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "FAILURES": str(folder / "failures")}
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", text],
            env=clean_environment(own),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        process.wait(WITHIN)
    except subprocess.TimeoutExpired:
        (folder / "failures").write_text("the guide did not come to its end")
    finally:
        with suppress(ProcessLookupError):  # it left nothing
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return (folder / "output").read_text(), (folder / "failures").read_text()


@pytest.mark.release("a minute of commands that the labs and the command line have their own tests for")
@pytest.mark.slow
def test_every_command_of_the_guide_works(
    database: str, elastic_url: str, absent_index: str, free_port: Callable[[], int], tmp_path: Path
) -> None:
    addresses = {
        "postgresql+psycopg://wordloom:wordloom@localhost:5435/wordloom_test": database.replace(
            "://", "+psycopg://", 1
        ),
        "http://localhost:9200": elastic_url,
        "wordloom-test-search-index": absent_index,
        "9109": str(free_port()),
        "19201": str(free_port()),
        "19202": str(free_port()),
        "TOTAL_OPS=3000": "TOTAL_OPS=100",
        "build/guide": str(tmp_path / "guide"),
    }
    output, failures = run(script(tmp_path, addresses), tmp_path)
    assert not failures, f"{failures}\n{output[-6000:]}"
    with psycopg.connect(database) as connection:
        # The guide's SIGTERM follows the last commit at once: what is not claimed by then waits, no attempt spent.
        seen = connection.execute(
            "select case when status = 'pending' and attempts = 0 then 'done' else status end, count(*)"
            " from search_outbox_events group by 1"
        ).fetchall()
        replayed = connection.execute(
            "select status, last_replayed_by, count(*) from search_outbox_events where replay_count = 1 group by 1, 2"
        ).fetchall()
    assert dict(seen) == {"done": 650, "failed": 1}, output[-4000:]
    assert {(status, by) for status, by, _ in replayed} == {("done", "alice"), ("failed", "alice")}


@pytest.mark.release("a minute of a PostgreSQL of its own, for the guide alone")
def test_the_database_script_starts_migrates_and_stops(
    start_process: StartProcess, free_port: Callable[[], int]
) -> None:
    port = str(free_port())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def devtest(*arguments: str) -> RunningProcess:
        return start_process(["scripts/devtest_db_5435_start.sh", *arguments], DEVTEST_DB_PORT=port, PATH=path)

    started = devtest()
    assert started.wait() == 0, started.output
    try:
        for name in ("wordloom_dev", "wordloom_test"):
            assert f"postgresql+psycopg://wordloom:wordloom@localhost:{port}/{name}" in started.output
            with psycopg.connect(f"postgresql://wordloom:wordloom@localhost:{port}/{name}") as connection:
                connection.execute("select from search_outbox_events limit 0")
    finally:
        assert devtest("stop").wait() == 0


def test_the_load_generator_keeps_a_ledger_of_what_was_committed(
    start_process: StartProcess, database: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.ndjson"
    process = start_process(
        [sys.executable, "scripts/load_generate_blocks.py"],
        DATABASE_URL=database.replace("://", "+psycopg://", 1),
        LOADGEN_SCENARIO="mixed",
        TOTAL_OPS="60",
        RATE_PER_SEC="300",
        CONCURRENCY="4",
        LOADGEN_LEDGER=str(ledger),
        API_BASE="http://localhost:30011",
    )
    assert process.wait() == 0, process.output
    assert "API_BASE is ignored" in process.output
    kept = {json.loads(line)["id"]: json.loads(line) for line in ledger.read_text().splitlines()}
    with psycopg.connect(database) as connection:
        rows = connection.execute("select id::text, op, event_version from search_outbox_events").fetchall()
    assert {id: (kept[id]["op"], kept[id]["version"]) for id in kept} == {id: (op, v) for id, op, v in rows}
    assert len(kept) == 60
