"""The README and the library example of docs/producers.md, run; their links, and the commands that they name."""

import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
import typer.main
from elasticsearch import Elasticsearch

from outbox.cli.menu import app
from tests.fixtures.depth import depth
from tests.fixtures.processes import ROOT, StartProcess, clean_environment
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually, slowness

README = (ROOT / "README.md").read_text(encoding="utf-8")
# The other ways to write an event, over the tables of the README.
PRODUCERS = (ROOT / "docs" / "producers.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
# Articles that are there before the reader begins, each with a comment. With a million, 82 s in all on two busy cores:
# 63 s are `outbox backfill`.
ROWS = int(os.environ.get("OUTBOX_TEST_README_ROWS", depth(2_000, 20_000)))
SECONDS = PATIENCE_SECONDS + ROWS / 500
BLOCK = re.compile(r"^```(\w+) test=([\w-]+)( background)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(name: str) -> list[tuple[str, bool, str]]:
    """Language, whether it runs beside the others, and text of every block of this test, in order."""
    return [(m[1], bool(m[3]), m[4]) for m in BLOCK.finditer(README + PRODUCERS + TUTORIAL) if m[2] == name]


@pytest.fixture
def environment(
    empty_database: str, elastic_url: str, absent_index: str, tmp_path: Path, free_port: object
) -> dict[str, str]:
    """What the reader has exported, and `outbox` on the PATH."""
    program = tmp_path / "outbox"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m outbox "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert callable(free_port)
    return {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "DATABASE_URL": empty_database,
        "ELASTIC_URL": elastic_url,
        "ELASTIC_INDEX": absent_index,
        "OUTBOX_METRICS_PORT": str(free_port()),
    }


def shell(text: str, environment: dict[str, str], folder: Path = ROOT) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=SECONDS * slowness(),
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def fill(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        more = "select g, 'A book of number ' || g, g % 100 from generate_series(1000, 999 + %s::int) g"
        connection.execute(f"insert into articles {more.replace(' % ', ' %% ')}".encode(), (ROWS,))
        connection.execute("insert into comments (article_id, text) select id, 'Read it' from articles where id > 999")
        connection.execute("analyze")


@pytest.mark.timeout(int(600 + ROWS / 100))
def test_your_own_table_is_plugged_in_by_the_readme_alone(
    start_process: StartProcess, environment: dict[str, str], es: Elasticsearch
) -> None:
    said = ""
    for language, background, text in blocks("own-table"):
        if background:
            start_process(["bash", "-c", f"exec {text.strip()}"], **environment).wait_for_line("worker.started")
        elif language == "sql":
            with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
                connection.execute(text.encode())
            if "create table articles" in text:
                fill(environment["DATABASE_URL"])
        else:
            began = time.monotonic()
            said = shell(text, environment)
            print(f"{time.monotonic() - began:.1f} s: {text.strip()}")
    promised = json.loads(re.search(r"```json\n(.*?)```", README, re.DOTALL)[1])  # type: ignore[index]
    assert json.loads(said.splitlines()[-1]) == promised
    index = environment["ELASTIC_INDEX"]
    assert not es.exists(index=index, id="article:2")
    assert es.count(index=index, query={"match": {"comments": "read"}})["count"] == ROWS
    for id in ("note:3", "note:4"):
        eventually(lambda id=id: es.exists(index=index, id=id), what=id)  # type: ignore[misc]


def test_the_tutorial_goes_from_an_empty_database_to_a_searchable_shop(
    start_process: StartProcess, environment: dict[str, str], es: Elasticsearch, tmp_path: Path
) -> None:
    environment |= {"USER": "reader", "PYTHONPATH": str(ROOT)}
    said: list[str] = []
    for language, background, text in blocks("tutorial"):
        if background:
            start_process(["bash", "-c", f"exec {text.strip()}"], **environment).wait_for_line("worker.started")
        elif language == "sql":
            with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
                connection.execute(text.encode())
        else:
            said.append(shell(text, environment, tmp_path))
    failures, searched = said[2], said[4]
    assert "es_rejected_document" in failures
    promised = json.loads(re.search(r"```json\n(.*?)```", TUTORIAL, re.DOTALL)[1])  # type: ignore[index]
    assert json.loads(searched.splitlines()[-1]) == promised
    assert es.count(index=environment["ELASTIC_INDEX"])["count"] == 3
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        left = connection.execute("select count(*) from search_outbox_events where status <> 'done'").fetchone()
    assert left == (0,)


def test_the_library_example_runs_as_it_stands(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table articles (id bigint primary key, title text, price numeric)")
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, status, error_reason, error)"
            " values ('article', '9', 'upsert', 'failed', 'es_rejected_document', 'does not fit')"
        )
        ((_, _, text),) = blocks("library")
        names: dict[str, object] = {"database_url": database}
        exec(compile(text, "docs/producers.md", "exec"), names)
        assert "does not fit" in capsys.readouterr().out
        rows = connection.execute("select entity_id, status from search_outbox_events order by 1").fetchall()
    assert rows == [("5", "pending"), ("5", "pending"), ("9", "pending")]
    assert names["total"] == 0


def test_every_command_that_the_documents_name_is_there() -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        named = {m[1] for m in re.finditer(r"`outbox ([a-z-]+)", text)}
        assert named <= known, f"{name}: {named - known}"


FOLDERS = ("deploy", "docs", "examples", "grafana", "labs", "scripts", "sql")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]


@pytest.mark.parametrize("name", sorted(page.relative_to(ROOT).as_posix() for page in PAGES))
def test_links_and_paths_in_the_documents_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [m[1] for m in re.finditer(r"\]\((?!https?:)([^)#]+)", text)]
    paths = [
        m[1] for m in re.finditer(r"`((?:outbox|sql|scripts|tests|docs|labs|deploy|grafana|bench)/[\w./]*)`", text)
    ]
    places = {(ROOT / name).parent / link for link in links} | {ROOT / path for path in paths}
    missing = [str(place) for place in places if not place.exists()]
    assert missing == []
