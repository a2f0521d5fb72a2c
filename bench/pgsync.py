"""PGSync in its own environment, with Debian's redis."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg

from bench.arrivals import DidNotFollow
from bench.result import CannotRun, progress
from bench.stack import BenchmarkServers
from bench.tools import HOME, must, programs
from bench.worker import stopped
from outbox.embedded.process import free_port

VERSION = "7.3.0"
DEBIAN = Path("/usr/lib/postgresql")
LOG = HOME / "pgsync.log"
REDIS_PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
# In its favour: it polls ten times as often as by default, else a change waits for its next poll.
TUNED = {"POLL_TIMEOUT": "0.01", "CONSOLE_LOGGING_HANDLER_MIN_LEVEL": "ERROR"}
TRIGGERS, WAL = "--daemon", "--wal"  # its two live modes
ONCE_SECONDS = 120.0  # for what runs once: the bootstrap, a snapshot
Processes = list[subprocess.Popen[bytes]]


def installed() -> Path:
    """The folder of its programs."""
    return programs("pgsync", f"pgsync=={VERSION}")


def redis_program() -> tuple[str, dict[str, str]]:
    """The installed one, or Debian's package unpacked under build/: starts no service and needs no root."""
    if found := shutil.which("redis-server"):
        return found, {}
    place = HOME / "redis"
    program = place / "usr/bin/redis-server"
    if not program.exists():
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise CannotRun("no redis-server, and no apt-get to fetch Debian's package")
        progress("fetching Debian's redis-server")
        place.mkdir(parents=True, exist_ok=True)
        must(["apt-get", "download", *REDIS_PACKAGES], "redis-server cannot be fetched", place)
        for package in place.glob("*.deb"):
            must(["dpkg-deb", "-x", str(package), str(place)], "redis-server cannot be unpacked")
    folders = ":".join(str(folder) for folder in (place / "usr/lib").glob("*-linux-gnu"))
    return str(program), {"LD_LIBRARY_PATH": folders}


def postgres_programs() -> Path:
    """PGSync reads the WAL by `test_decoding`, which Debian's PostgreSQL has and the embedded one has not."""
    found = sorted(DEBIAN.glob("*/lib/test_decoding.so"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise CannotRun("PGSync needs PostgreSQL with test_decoding: install Debian's package postgresql")
    return found[-1].parents[1] / "bin"


@contextmanager
def redis() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    program, more = redis_program()
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with LOG.open("ab") as log:
        process = subprocess.Popen(command, env={**os.environ, **more}, stdout=log, stderr=log, cwd=HOME)
    with stopped(process):
        time.sleep(0.5)
        if process.poll() is not None:
            raise CannotRun(f"redis-server does not start; see {LOG.name}")
        yield port, process


@contextmanager
def session(
    servers: BenchmarkServers, index: str, tables: str, nodes: Mapping[str, object]
) -> Iterator[tuple[str, "PgSync", Processes]]:
    """A new database with these tables, PGSync for it, and the processes that move its documents: redis is the
    first, and is stopped here."""
    HOME.mkdir(parents=True, exist_ok=True)
    with servers.database() as url, redis() as (port, server):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(tables.encode())
        try:
            yield url, PgSync(url, servers.elastic_url, index, port, nodes), [server]
        finally:
            _drop_slots(url)


def _drop_slots(url: str) -> None:
    """A database with a slot cannot be dropped; the slot is free when its reader has ended."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
                " where database = current_database()"
            )
            return
        time.sleep(0.2)


class PgSync:
    """One database, one index, the documents of its schema's `nodes`."""

    def __init__(self, url: str, elastic_url: str, index: str, redis_port: int, nodes: Mapping[str, object]) -> None:
        parts = urlsplit(url)
        self._programs = installed()
        self._folder = HOME / "run" / index
        self._folder.mkdir(parents=True, exist_ok=True)
        schema = [{"database": parts.path.lstrip("/"), "index": index, "nodes": nodes}]
        (self._folder / "schema.json").write_text(json.dumps(schema))
        self._environ = {
            **os.environ,
            **TUNED,
            "PG_HOST": parts.hostname or "127.0.0.1",
            "PG_PORT": str(parts.port),
            "PG_USER": unquote(parts.username or ""),
            "PG_PASSWORD": unquote(parts.password or ""),
            "ELASTICSEARCH_URL": elastic_url,
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(redis_port),
            "CHECKPOINT_PATH": str(self._folder),
        }

    def bootstrap(self) -> None:
        """Triggers, a view and a replication slot in the source database."""
        self._once("bootstrap")

    def snapshot(self) -> None:
        """What is there already: the live mode of the WAL begins at the slot."""
        self._once("pgsync")

    def start(self, *mode: str) -> subprocess.Popen[bytes]:
        with LOG.open("ab") as log:
            return subprocess.Popen(
                self._command("pgsync", *mode), env=self._environ, cwd=self._folder, stdout=log, stderr=log
            )

    def _once(self, program: str) -> None:
        command, folder = self._command(program), self._folder
        try:
            done = subprocess.run(
                command, env=self._environ, cwd=folder, capture_output=True, check=False, timeout=ONCE_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise DidNotFollow(f"its {program} did not end within {ONCE_SECONDS:.0f} s") from None
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise DidNotFollow(f"its {program} ended with {done.returncode}: {' '.join(last)[:300]}")

    def _command(self, program: str, *more: str) -> list[str]:
        return [str(self._programs / "python"), str(self._programs / program), "--config", "schema.json", *more]
