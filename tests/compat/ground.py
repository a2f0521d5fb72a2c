"""Owns what a combination stands on: its servers, its pooler, its Python, or a clear word on what is missing."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from labs.client import connect
from outbox.embedded import EmbeddedPostgres, EmbeddedSearch
from outbox.embedded.stack import search_server
from outbox.errors import OutboxError
from tests.compat.combination import RESULTS, ROOT, Combination
from tests.fixtures.pgbouncer import ROUTE, Pgbouncer
from tests.fixtures.servers import POSTGRES_SETTINGS, PRODUCT

DEBIAN = Path("/usr/lib/postgresql")


class MissingSoftware(Exception):
    """Something that ordinary clients could not bring; the text says what was tried."""


READY_SECONDS = 900.0  # these runs are niced, and a busy machine lets a server wait for minutes


def patient(release: str) -> type[EmbeddedSearch]:
    return type("PatientSearch", (search_server(release),), {"ready_seconds": READY_SECONDS})


@dataclass(frozen=True, slots=True)
class Ground:
    python: Path
    env: dict[str, str]
    versions: dict[str, str]


@contextmanager
def standing_on(combination: Combination) -> Iterator[Ground]:
    python = interpreter(combination.python)
    try:
        with ExitStack() as stack:
            postgres = stack.enter_context(EmbeddedPostgres.temporary(**_postgres_options(combination.postgresql)))
            pooler = stack.enter_context(_pooler(postgres.url)) if combination.pooler else None
            release = combination.search
            elastic = stack.enter_context(patient(release).temporary(version=release, heap="768m"))
            env = {"OUTBOX_TEST_DATABASE_URL": postgres.url, "OUTBOX_TEST_ELASTIC_URL": elastic.url, PRODUCT: release}
            if pooler:
                env[ROUTE] = f"{urlsplit(postgres.url).port}:{pooler.port}"
            yield Ground(python, env, _versions(postgres.url, elastic.url, python, pooler))
    except OutboxError as error:
        raise MissingSoftware(error.message) from error


def _postgres_options(major: int) -> dict[str, Any]:
    options: dict[str, Any] = {"settings": POSTGRES_SETTINGS}
    if major == 18:
        return options
    programs = DEBIAN / str(major) / "bin"
    if not (programs / "postgres").exists():
        raise MissingSoftware(
            f"PostgreSQL {major}: {programs} is not there; tried the Debian package postgresql-{major}"
        )
    return {**options, "bin_dir": programs}


def _pooler(url: str) -> Any:
    if not shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"):
        raise MissingSoftware("pgbouncer: not on the PATH; tried the Debian package pgbouncer")
    return Pgbouncer.temporary(server_url=url)


def _versions(database_url: str, elastic_url: str, python: Path, pooler: Pgbouncer | None) -> dict[str, str]:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("show server_version").fetchone()
    with connect(elastic_url) as client:
        version = client.info()["version"]
        elastic = f"{'OpenSearch ' if 'distribution' in version else ''}{version['number']}"
    told = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "postgresql": str(row[0]).split()[0] if row else "?",
        "elasticsearch": elastic,
        "python": told.split()[1],
        "pooler": f"pgbouncer {'.'.join(map(str, pooler.version))}, transaction" if pooler else "none",
    }


# Python


def interpreter(version: str) -> Path:
    """This checkout's own where that is the version; else one with the same pinned packages, made once."""
    own = ROOT / ".venv" / "bin" / "python"
    if _is(own, version):
        return own
    folder = RESULTS / f"python-{version}"
    stamp = folder / ".installed"
    pinned = (ROOT / "requirements" / "dev.txt").read_text()
    if not (stamp.exists() and stamp.read_text() == pinned):
        _install(_find(version), folder)
        stamp.write_text(pinned)
    return folder / "bin" / "python"


def _install(base: Path, folder: Path) -> None:
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    for argv in (
        [str(base), "-m", "venv", "--clear", str(folder)],
        [*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "dev.txt")],
        [*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
    ):
        done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            raise MissingSoftware(f"{' '.join(argv[:4])}: {done.stderr.strip()[-300:]}")


def _find(version: str) -> Path:
    """On the PATH, then where pyenv and uv keep theirs."""
    places = [Path(found) for found in [shutil.which(f"python{version}")] if found]
    for folder in (Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"):
        places += sorted(folder.glob(f"*{version}*/bin/python{version}"))
    for place in places:
        if _is(place, version):
            return place
    raise MissingSoftware(
        f"Python {version}: tried the PATH, pyenv's and uv's folders and the Debian package python{version}"
    )


def _is(python: Path, version: str) -> bool:
    """By asking: pyenv puts programs on the PATH that only say that they are not chosen."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.stdout.strip() == version
