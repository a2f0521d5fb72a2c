"""Compares the schema that another revision's migrations make with this checkout's, by pg_dump; it changes nothing.

`python -m tests.compat.same_schema REVISION`: new databases, a schema of their own, an adopted table; on every
PostgreSQL that is at hand. Function bodies are compared without comments and line breaks.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg

from labs.addresses import with_words
from outbox.embedded import EmbeddedPostgres
from tests.compat.release import CodeRevision
from tests.fixtures.guide_table import create_guide_table
from tests.fixtures.postgres import fresh_database, older_servers
from tests.fixtures.servers import POSTGRES_SETTINGS

PARTS = ["--by-type", "--by-entity", "--notify"]
SETTINGS = """select coalesce(setrole::regrole::text, ''), setconfig from pg_db_role_setting
               where setdatabase = (select oid from pg_database where datname = current_database()) order by 1"""


def migrated(release: CodeRevision, server: str, case: str) -> dict[str, str]:
    with fresh_database(server) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            if case == "own schema":
                connection.execute("create schema app")
            if case == "adopted":
                create_guide_table(connection, 100)
        address = with_words(url, "options=-csearch_path%3Dapp") if case == "own schema" else url
        done = release.outbox({"DATABASE_URL": address}, "migrate", *PARTS)
        if done.returncode:
            sys.exit(f"{release.name}, {case}: {done.stdout}{done.stderr}")
        with psycopg.connect(url) as connection:
            settings = str(connection.execute(SETTINGS).fetchall())
        return {"settings of roles": settings, **dict(dumped(url))}


def dumped(url: str) -> Iterator[tuple[str, str]]:
    address = urlsplit(url)._replace(query="").geturl()
    with psycopg.connect(url) as connection:
        [folder] = connection.execute("select setting from pg_config where name = 'BINDIR'").fetchone() or [""]
    dump = [f"{folder}/pg_dump", "--schema-only", address]
    text = subprocess.run(dump, check=True, capture_output=True).stdout.decode()
    chunks = re.split(r"^-- Name: (.*?); Owner: .*$", text, flags=re.MULTILINE)
    for name, body in zip(chunks[1::2], chunks[2::2], strict=True):
        bare = re.sub(r"--.*|^\\.*$", "", body, flags=re.MULTILINE)  # newer dumps end with a random word
        # The order of grants says nothing; that of statements in a function does.
        parts = sorted(bare.split(";\n")) if "ACL" in name else [bare]
        yield name, ";".join(" ".join(part.split()) for part in parts).replace("' '", "")


def main(revision: str) -> int:
    old, new, different = CodeRevision.of(revision), CodeRevision("this checkout"), 0
    for options in ({}, *older_servers()):
        with EmbeddedPostgres.temporary(settings=POSTGRES_SETTINGS, **options) as server:
            for case in ("new", "own schema", "adopted"):
                before, after = migrated(old, server.url, case), migrated(new, server.url, case)
                print(f"PostgreSQL {options or 18}, {case}: {len(before)} and {len(after)} objects")
                for name in sorted(before.keys() | after.keys()):
                    if before.get(name) != after.get(name):
                        different += 1
                        print(f"--- {name}\n  old: {before.get(name)}\n  new: {after.get(name)}")
    return different


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) and 1)
