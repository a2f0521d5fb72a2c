"""The guide's servers without Docker: PostgreSQL with wordloom's two databases, and Elasticsearch.

python -m labs.devtest [PORT]       PostgreSQL on 5435 until Ctrl-C or SIGTERM (scripts/devtest_db_5435_start.sh)
python -m labs.devtest es [PORT]    Elasticsearch on 9200, likewise
"""

from __future__ import annotations

import signal
import sys

import psycopg
from psycopg import sql

from outbox.embedded import EmbeddedElasticsearch, EmbeddedPostgres
from outbox.embedded.folders import default_data_dir
from outbox.errors import OutboxError
from outbox.store.schema.migrate import migrate

USER = PASSWORD = "wordloom"
ENDS = {signal.SIGINT, signal.SIGTERM}
DATABASES = ("wordloom_dev", "wordloom_test")


def url(port: int, database: str) -> str:
    return f"postgresql://{USER}:{PASSWORD}@localhost:{port}/{database}"


def prepare(admin_url: str, port: int) -> None:
    """As in the compose file; then `outbox migrate` on both."""
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


def serve_postgresql(port: int) -> None:
    with EmbeddedPostgres(default_data_dir() / f"devtest-db-{port}", port=port) as server:
        prepare(server.url, port)
        for name in DATABASES:
            print(f"DATABASE_URL={url(port, name).replace('postgresql', 'postgresql+psycopg')}", flush=True)
        signal.sigwait(ENDS)


def serve_elasticsearch(port: int) -> None:
    """Its data is kept, like the databases: the guide's index is found again."""
    print("starting Elasticsearch: about 15 s, longer the first time", file=sys.stderr, flush=True)
    with EmbeddedElasticsearch(default_data_dir() / f"devtest-es-{port}", port=port) as server:
        print(f"ELASTIC_URL={server.url}", flush=True)
        signal.sigwait(ENDS)


def main(arguments: list[str]) -> int:
    elastic = arguments[:1] == ["es"]
    given = arguments[1:] if elastic else arguments
    if given and not given[0].isdecimal():
        print(__doc__, file=sys.stderr)
        return 2
    # Blocked before a server starts, so that no signal is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        if elastic:
            serve_elasticsearch(int(given[0]) if given else 9200)
        else:
            serve_postgresql(int(given[0]) if given else 5435)
    except OutboxError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
