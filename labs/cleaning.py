"""Removes what runs left behind: the databases, indexes and folders that their manifests name, nothing else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
from elasticsearch import ApiError, TransportError
from psycopg import sql

from labs import index
from labs.client import connect
from labs.errors import StackUnusable

OURS = re.compile(r"lab[-_][a-z0-9_-]+[-_][0-9a-f]{6}$")


def clean(runs: Path, database_url: str | None, elastic_url: str | None, *, reports: bool) -> Iterator[str]:
    for folder in sorted(path.parent for path in runs.glob("*/made.json")):
        made = json.loads((folder / "made.json").read_text(encoding="utf-8"))
        for name in made["databases"]:
            if database_url and OURS.match(name):
                yield _drop_database(database_url, name)
        if elastic_url and OURS.match(made["index"]):
            yield _drop_index(elastic_url, made["index"])
        if reports:
            shutil.rmtree(folder)
            yield f"removed {folder}"
    if reports:
        (runs / "index.html").unlink(missing_ok=True)
    if not database_url and not elastic_url:
        yield "those on embedded servers are removed already; for other servers give --database-url and --elastic-url"


def _drop_database(url: str, name: str) -> str:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            there = connection.execute("select from pg_database where datname = %s", [name]).rowcount
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
    except psycopg.OperationalError as away:
        raise StackUnusable(f"PostgreSQL does not answer: {str(away).splitlines()[0]}") from None
    return f"dropped database {name}" if there else f"database {name} does not exist"


def _drop_index(url: str, name: str) -> str:
    try:
        with connect(url, request_timeout=20, max_retries=0) as elastic:
            there = bool(elastic.indices.exists(index=f"{name}-v1"))
            index.drop(elastic, name)
    except (ApiError, TransportError) as away:
        raise StackUnusable(f"Elasticsearch does not answer: {type(away).__name__}") from None
    return f"dropped index {name}" if there else f"index {name} does not exist"
