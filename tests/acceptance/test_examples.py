"""The example projects, run as their pages say: a change by HTTP or by anything else, and a search that finds it."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from elasticsearch import Elasticsearch
from psycopg.conninfo import conninfo_to_dict

from tests.fixtures.processes import ROOT, StartProcess, clean_environment
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.elasticsearch
BLOCK = re.compile(r"^```sh test=example( background)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = ("fastapi", "django")


@pytest.fixture
def environment(
    empty_database: str, elastic_url: str, absent_index: str, tmp_path: Path, free_port: Callable[[], int]
) -> dict[str, str]:
    """What the reader has exported, and our programs on the PATH."""
    for name, module in (("outbox", "outbox"), ("uvicorn", "uvicorn"), ("alembic", "alembic.config"), ("python", "")):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {f"-m {module}" if module else ""} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    found = conninfo_to_dict(empty_database)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "DATABASE_URL": empty_database,
        **{f"DATABASE_{name}": str(found[key]) for name, key in names.items()},
        "ELASTIC_URL": elastic_url,
        "ELASTIC_INDEX": absent_index,
        "OUTBOX_METRICS_PORT": str(free_port()),
        "PORT": str(free_port()),
    }


def start_example(name: str, start_process: StartProcess, environment: dict[str, str]) -> httpx.Client:
    """Every block of its page, in order; those of terminals of their own stay."""
    folder = ROOT / "examples" / name
    for background, text in BLOCK.findall((folder / "README.md").read_text(encoding="utf-8")):
        script = f"cd {folder}\n{text}"
        if background:
            start_process(["bash", "-c", script.replace("\n", "\nexec ", 1)], **environment)
        else:
            run(script, environment)
    client = httpx.Client(base_url=f"http://127.0.0.1:{environment['PORT']}", timeout=PATIENCE_SECONDS)
    eventually(lambda: answers(client), what="the service answers")
    return client


def run(script: str, environment: dict[str, str]) -> None:
    argv = ["bash", "-euo", "pipefail", "-c", script]
    env = clean_environment(environment)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/search", params={"q": "nothing"}).status_code == 200
    except httpx.TransportError:
        return False


def searched(client: httpx.Client, es: Elasticsearch, environment: dict[str, str], q: str) -> list[dict[str, Any]]:
    es.indices.refresh(index=environment["ELASTIC_INDEX"])
    hits: list[dict[str, Any]] = client.get("/search", params={"q": q}).raise_for_status().json()
    return hits


@pytest.mark.release("one example shows that pages of examples are run", keep=("fastapi",))
@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_change_by_http_is_found_by_a_search(
    name: str, start_process: StartProcess, environment: dict[str, str], es: Elasticsearch
) -> None:
    with closing(start_example(name, start_process, environment)) as client:

        def found(q: str) -> list[dict[str, Any]]:
            return searched(client, es, environment, q)

        def sent(method: str, path: str, **body: str) -> Any:
            reply = client.request(method, path, json=body or None).raise_for_status()
            return reply.json() if reply.content else None

        id = sent("POST", "/articles", title="Night trains")["id"]
        other = sent("POST", "/articles", title="Maps")["id"]
        eventually(lambda: [hit["id"] for hit in found("trains")] == [f"article:{id}"], what="the new article")
        sent("POST", f"/articles/{id}/comments", text="Bring a pillow")
        whole = {"id": f"article:{id}", "title": "Night trains", "comments": ["Bring a pillow"]}
        eventually(lambda: found("pillow") == [whole], what="the new comment")
        sent("PUT", f"/articles/{id}", title="Day boats")
        eventually(lambda: found("boats") and not found("trains"), what="the new title")
        sent("DELETE", f"/articles/{id}")
        eventually(lambda: not found("boats") and not found("pillow"), what="that it is gone")
        assert [hit["id"] for hit in found("maps")] == [f"article:{other}"]
