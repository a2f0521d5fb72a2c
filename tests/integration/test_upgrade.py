"""A newer schema under the previous release: its data stay, its statements fit, its work is finished, and back."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch
from psycopg import sql

from outbox.store.schema import files
from outbox.store.schema.migrate import back, migrate
from outbox.store.schema.state import check_schema
from tests.fixtures.commands import Outbox as Command
from tests.fixtures.postgres import fresh_database
from tests.fixtures.processes import StartProcess
from tests.fixtures.rows import counts
from tests.fixtures.waiting import eventually
from tests.integration.test_queries import prepared_text

PREVIOUS = Path(__file__).parents[1] / "previous"
SCHEMA = 22
NEWER = [migration.name for migration in files.numbered() if (migration.number or 0) > SCHEMA]
Connection = psycopg.Connection[Any]


@pytest.fixture
def previous(postgres_url: str) -> Iterator[str]:
    """A database as the previous release left it."""
    with fresh_database(postgres_url) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute((PREVIOUS / "database.sql").read_bytes())
        yield url


@pytest.fixture
def connected(previous: str) -> Iterator[Connection]:
    with psycopg.connect(previous, autocommit=True) as connection:
        yield connection


def columns(connection: Connection) -> dict[str, list[str]]:
    rows = connection.execute(
        "select table_name, array_agg(column_name::text order by ordinal_position) from information_schema.columns"
        " where table_schema = 'public' group by 1"
    ).fetchall()
    return dict(rows)


def contents(connection: Connection, wanted: dict[str, list[str]]) -> dict[str, list[str]]:
    """Every row of every table, in the columns that are asked for; the list of migrations is meant to grow."""
    found = {}
    for table, names in wanted.items():
        if table == "search_outbox_migrations":
            continue
        row = sql.SQL("select row({})::text from {} order by 1").format(
            sql.SQL(", ").join(map(sql.Identifier, names)), sql.Identifier(table)
        )
        found[table] = [text for (text,) in connection.execute(row)]
    return found


def catalogue(connection: Connection) -> list[tuple[Any, ...]]:
    """Everything of ours that the database knows; a function's closed search_path (0050) stays on purpose."""
    return connection.execute("""
        select 'column', table_name || '.' || column_name, data_type || coalesce(column_default, '') || is_nullable
          from information_schema.columns where table_schema = 'public'
        union all select 'index', indexname, indexdef from pg_indexes where schemaname = 'public'
        union all select 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
          from pg_constraint where connamespace = 'public'::regnamespace
        union all select 'trigger', tgname, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
        union all select 'function', proname, prosrc from pg_proc where pronamespace = 'public'::regnamespace
        union all select 'sequence', sequencename, '' from pg_sequences where schemaname = 'public'
        order by 1, 2, 3
    """).fetchall()


def test_only_what_is_newer_is_applied_and_no_row_changes(previous: str, connected: Connection) -> None:
    wanted = columns(connected)
    before = contents(connected, wanted)
    assert len(before["search_outbox_events"]) == 45
    assert migrate(previous) == NEWER
    assert contents(connected, wanted) == before
    assert check_schema(connected).ok


def statements(topic: str) -> dict[str, str]:
    """As the previous release's own loader reads them."""
    parts = re.split(r"^-- name: (\w+)\s*$", (PREVIOUS / "statements" / f"{topic}.sql").read_text(), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))
    include = re.compile(r"^-- include: (\w+)\s*$", re.MULTILINE)
    whole = {name: include.sub(lambda found: texts[found[1]], text) for name, text in texts.items()}
    return {name: text for name, text in whole.items() if not name.startswith("_")}


# psycopg sends these types along; a bare PREPARE cannot guess them.
TYPES = {"events.spend_quota": "(float8, float8)", "events.put_quota": "(unknown, int4, float4)"}


@pytest.mark.parametrize("topic", sorted(path.stem for path in (PREVIOUS / "statements").glob("*.sql")))
def test_every_statement_of_the_previous_release_still_fits(connection: Connection, topic: str) -> None:
    """A daemon of it may still run while the new schema is there already."""
    connection.execute(
        "create view a_view as select ''::text as entity_type, ''::text as entity_id, '{}'::json as document,"
        " 0::bigint as version"
    )
    for name, text in statements(topic).items():
        types = TYPES.get(f"{topic}.{name}", "")
        connection.execute(f'prepare "{name}" {types} as {prepared_text(text)}'.encode())


def test_what_the_previous_release_left_is_finished(
    previous: str, connected: Connection, start_daemon: StartProcess, outbox: Command, es: Elasticsearch, index: str
) -> None:
    migrate(previous)
    daemon = start_daemon(DATABASE_URL=previous)
    finished = {"done": 42, "failed": 2, "discarded": 1}
    eventually(lambda: counts(connected) == finished, what="all of it settled")
    titles = [es.get(index=index, id=f"article:{id}")["_source"]["title"] for id in range(11, 31)]
    assert titles == [f"later {id}" for id in range(11, 31)]
    assert outbox("audit", "verify", DATABASE_URL=previous).code == 0
    replayed = outbox("replay", "--by", "ada", "--reason", "after the upgrade", "--yes", DATABASE_URL=previous)
    assert replayed.code == 0, replayed.err
    assert daemon.terminate() == 0


def test_the_printed_way_back_restores_the_schema_and_keeps_the_rows(previous: str, connected: Connection) -> None:
    schema, wanted = catalogue(connected), columns(connected)
    before = contents(connected, wanted)
    migrate(previous)
    for part in back(SCHEMA).split("-- Takes back ")[1:]:
        connected.execute(part.partition("\n")[2].encode())
    assert catalogue(connected) == schema
    assert contents(connected, wanted) == before
    assert str(check_schema(connected)).startswith(f"schema {SCHEMA} is too old")
    assert migrate(previous) == NEWER


def test_the_way_back_ends_where_a_table_may_have_been_adopted(outbox_here: Command) -> None:
    assert outbox_here("migrate", "sql", "--back-to", "8").code == 2
    script = outbox_here("migrate", "sql", "--back-to", str(SCHEMA))
    assert re.findall(r"^-- Takes back (\w+)", script.out, re.MULTILINE) == NEWER[::-1]
