"""Owns the guide's database where there is no Docker: PostgreSQL on 5435 with wordloom's user and two databases.

python -m labs.devtest [PORT]     serves until Ctrl-C or SIGTERM; scripts/devtest_db_5435_start.sh starts it
"""

from __future__ import annotations

import signal
import sys

import psycopg
from psycopg import sql

from outbox.embedded import EmbeddedPostgres
from outbox.embedded.folders import default_data_dir
from outbox.errors import OutboxError
from outbox.store.migrations import migrate

USER = PASSWORD = "wordloom"
DATABASES = ("wordloom_dev", "wordloom_test")


def url(port: int, database: str) -> str:
    return f"postgresql://{USER}:{PASSWORD}@localhost:{port}/{database}"


def prepare(admin_url: str, port: int) -> None:
    """As the compose file makes them; then `outbox migrate` on both."""
    with psycopg.connect(admin_url, autocommit=True) as admin:
        if not admin.execute("select from pg_roles where rolname = %s", [USER]).rowcount:
            role = sql.SQL("create role {} login createdb password {}")
            admin.execute(role.format(sql.Identifier(USER), sql.Literal(PASSWORD)))
        for name in DATABASES:
            if not admin.execute("select from pg_database where datname = %s", [name]).rowcount:
                create = sql.SQL("create database {} owner {}")
                admin.execute(create.format(sql.Identifier(name), sql.Identifier(USER)))
    for name in DATABASES:
        migrate(url(port, name))


def main(arguments: list[str]) -> int:
    port = int(arguments[0]) if arguments else 5435
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        with EmbeddedPostgres(default_data_dir() / f"devtest-{port}", port=port) as server:
            prepare(server.url, port)
            for name in DATABASES:
                print(f"DATABASE_URL={url(port, name).replace('postgresql', 'postgresql+psycopg')}", flush=True)
            signal.sigwait(ends)
    except OutboxError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
