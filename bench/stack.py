"""The servers of a benchmark: its own embedded pair, with production-like settings, or given ones."""

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
from elasticsearch import Elasticsearch

from bench import prose
from bench.result import CannotRun, progress
from labs.client import connect, server_of
from outbox.embedded import EmbeddedPostgres, EmbeddedStack
from outbox.embedded.stack import search_server
from outbox.store.schema.migrate import migrate

# fsync stays on: a benchmark that loses data on a crash measures something else.
POSTGRES = {
    "shared_buffers": "4GB",  # a quarter of a machine with 16 GB, as usually recommended; the backlog fits into it
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "max_connections": "200",
    "track_io_timing": "off",
}
# `--set stock=N` of a benchmark: the two that `outbox doctor` names, or what every server begins with.
STOCK = (
    POSTGRES,
    {name: POSTGRES[name] for name in ("shared_buffers", "max_wal_size")},
    {"shared_buffers": "128MB", "max_wal_size": "1GB", "max_connections": "100"},
)
JVM = ()  # no options of ours: as in production

QUIET_CORES = 0.1


@dataclass(slots=True)
class BenchmarkServers:
    """Two servers and how to read their cost."""

    admin_url: str
    elastic_url: str
    embedded: Mapping[str, object] = field(default_factory=dict)  # by name; empty for given servers
    heap: str = "2g"

    def client(self) -> Elasticsearch:
        return connect(self.elastic_url, request_timeout=120, retry_on_timeout=False, max_retries=0)

    def versions(self) -> dict[str, str]:
        with psycopg.connect(self.admin_url) as connection:
            row = connection.execute("show server_version").fetchone()
        server = server_of(self.client())
        return {"postgresql": str(row[0]) if row else "?", server.product.value: server.number}

    @contextmanager
    def beside(self, release: str) -> Iterator["BenchmarkServers"]:
        """The same PostgreSQL, and another search server, of the same size as this one's."""
        kind = search_server(release)
        with kind.temporary(version=release, heap=self.heap, jvm_options=JVM) as server:
            pair = {"postgresql": self.embedded["postgresql"], kind.product.name: server} if self.embedded else {}
            yield replace(self, elastic_url=server.url, embedded=pair)

    @contextmanager
    def on_postgres(self, major: int, stock: int) -> Iterator["BenchmarkServers"]:
        """The same search server, and a PostgreSQL that only this has: Debian's where it is 15."""
        with EmbeddedPostgres.temporary(settings=STOCK[stock], **_programs(major)) as server:
            yield replace(self, admin_url=server.url, embedded={**self.embedded, "postgresql": server})

    @contextmanager
    def database(self, **parts: Any) -> Iterator[str]:
        """A new, migrated database, with the text for the documents."""
        name = f"bench_{uuid.uuid4().hex[:10]}"
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
        url = urlsplit(self.admin_url)._replace(path=f"/{name}").geturl()
        try:
            migrate(url, **parts)
            prose.install(url)
            yield url
        finally:
            with psycopg.connect(self.admin_url, autocommit=True) as connection:
                connection.execute(f'drop database "{name}" with (force)')

    @contextmanager
    def index(self) -> Iterator[str]:
        name = f"bench-{uuid.uuid4().hex[:10]}"
        try:
            yield name
        finally:
            self.client().indices.delete(index=name, ignore_unavailable=True)

    def fresh_index(self, name: str) -> None:
        """One shard, no replicas, otherwise the server's defaults: the same for both sides."""
        client = self.client()
        client.indices.delete(index=name, ignore_unavailable=True)
        client.indices.create(
            index=name,
            settings={"number_of_shards": 1, "number_of_replicas": 0, "gc_deletes": "1h"},
            mappings={"properties": {"title": {"type": "text"}, "body": {"type": "text"}, "n": {"type": "long"}}},
        )

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time of each server with its children so far; nothing for given servers."""
        return {name: tree_cpu(owner_of(server)) for name, server in self.embedded.items()}

    def quiet(self, limit_seconds: float = 30.0) -> None:
        """Wait until both servers are idle: merges, flushes and vacuums of one side must not slow down the other."""
        if not self.embedded:
            return
        ends = time.monotonic() + limit_seconds
        while time.monotonic() < ends:
            before = sum(self.cpu_seconds().values())
            time.sleep(1.0)
            if sum(self.cpu_seconds().values()) - before < QUIET_CORES:
                return
        progress(f"the servers were not idle within {limit_seconds:.0f} s: the next figure may be too low")


def _programs(major: int) -> dict[str, Any]:
    if major == 18:
        return {}
    folder = Path(f"/usr/lib/postgresql/{major}/bin")
    if not folder.exists():
        raise CannotRun(f"no PostgreSQL {major}: install Debian's package postgresql-{major}")
    return {"bin_dir": folder, "major": major}


def owner_of(server: object) -> list[psutil.Process]:
    process = getattr(server, "_process", None)
    return list(process.processes()) if process is not None else []


def tree_cpu(processes: list[psutil.Process]) -> float:
    """Ended backends are in their parent's CPU time of children."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def servers(*, heap: str = "2g", release: str = "elasticsearch") -> Iterator[BenchmarkServers]:
    """Those in OUTBOX_TEST_DATABASE_URL and OUTBOX_TEST_ELASTIC_URL, or embedded ones that end with the benchmark."""
    database, elastic = os.environ.get("OUTBOX_TEST_DATABASE_URL"), os.environ.get("OUTBOX_TEST_ELASTIC_URL")
    stack = EmbeddedStack(
        database_url=database,
        elastic_url=elastic,
        es_version=release,
        es_heap=heap,
        es_jvm_options=JVM,
        pg_settings=POSTGRES,
        temporary=True,
    )
    with stack:
        pair = {"postgresql": stack.postgres, search_server(release).product.name: stack.elasticsearch}
        yield BenchmarkServers(stack.database_url, stack.elastic_url, {} if database or elastic else pair, heap)
