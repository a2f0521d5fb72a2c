"""The example projects, run as their pages say: a change by HTTP or by anything else, and a search that finds it."""

from __future__ import annotations

import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from elasticsearch import Elasticsearch
from psycopg.conninfo import conninfo_to_dict

from outbox.store.attach.installed import attachments
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


def no_triggers(connection: psycopg.Connection[Any]) -> bool:
    functions = "select count(*) from pg_proc where proname like 'search\\_outbox\\_capture%'"
    return (attachments(connection), connection.execute(functions).fetchone()) == ([], (0,))


@pytest.mark.release("half a minute of Django; test_django_app.py has its migrations in a quick one")
@pytest.mark.slow
def test_django_changes_that_send_no_signal_are_found_and_migrate_zero_removes_the_triggers(
    start_process: StartProcess, environment: dict[str, str], es: Elasticsearch
) -> None:
    def manage(command: str) -> None:
        run(f"cd {ROOT / 'examples' / 'django'}\npython manage.py {command}", environment)

    def shell(code: str) -> None:
        imports = "from django.db import connection; from blog.models import Article, Comment"
        manage(f"shell -c {shlex.quote(f'{imports}; {code}')}")

    with closing(start_example("django", start_process, environment)) as client:

        def titles(q: str) -> list[str]:
            return sorted(hit["title"] for hit in searched(client, es, environment, q))

        shell("Article.objects.bulk_create([Article(id=1, title='Maps'), Article(id=2, title='Maps')])")
        eventually(lambda: titles("maps") == ["Maps", "Maps"], what="what bulk_create made")
        shell("Article.objects.update(title='Day boats')")
        eventually(lambda: titles("boats") == ["Day boats", "Day boats"], what="what QuerySet.update changed")
        sql = "update blog_article set title = 'Night trains' where id = 1;"
        sql += " insert into blog_comment (article_id, text) values (1, 'Bring a pillow')"
        shell(f"connection.cursor().execute({sql!r})")
        eventually(lambda: titles("pillow") == titles("trains") == ["Night trains"], what="what SQL changed")
        shell("Article.objects.filter(id=1).delete()")
        eventually(lambda: titles("pillow trains boats") == ["Day boats"], what="what a cascade deleted")
    with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
        assert [each.table for each in attachments(connection)] == ["public.blog_article", "public.blog_comment"]
        manage("migrate blog zero")
        assert no_triggers(connection)


@pytest.mark.release("half a minute; test_attach_sql.py has the statements in a quick one")
@pytest.mark.slow
def test_changes_by_sql_and_by_cascade_are_found_and_a_downgrade_of_alembic_removes_the_triggers(
    start_process: StartProcess, environment: dict[str, str], es: Elasticsearch
) -> None:
    with (
        closing(start_example("fastapi", start_process, environment)) as client,
        psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection,
    ):

        def titles(q: str) -> list[str]:
            return sorted(hit["title"] for hit in searched(client, es, environment, q))

        connection.execute("insert into articles (id, title) values (1, 'Maps'), (2, 'Maps')")
        eventually(lambda: titles("maps") == ["Maps", "Maps"], what="what SQL inserted")
        connection.execute("update articles set title = 'Day boats'")
        connection.execute("insert into comments (article_id, text) values (1, 'Bring a pillow')")
        eventually(lambda: titles("boats") == ["Day boats"] * 2 and len(titles("pillow")) == 1, what="what SQL changed")
        connection.execute("delete from articles where id = 1")
        eventually(lambda: titles("pillow boats") == ["Day boats"], what="what a cascade deleted")
        assert [each.table for each in attachments(connection)] == ["public.articles", "public.comments"]
        run(f"cd {ROOT / 'examples' / 'fastapi'}\nalembic downgrade base", environment)
        assert no_triggers(connection)
