"""A newer schema and back: no row changes, and the printed way back restores what was there. It starts at 0.1.0."""

from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox.store.schema import files
from outbox.store.schema.migrate import back, migrate
from outbox.store.schema.state import check_schema
from tests.integration.test_migrations import fill

# Stands for an older release until there is one: the tables of events are there, everything later is newer.
SCHEMA = 8
OLDER = [migration for migration in files.numbered() if (migration.number or 0) <= SCHEMA]
NEWER = [migration.name for migration in files.numbered() if (migration.number or 0) > SCHEMA]
Connection = psycopg.Connection[Any]


@pytest.fixture
def older(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A filled database as the older release left it."""
    with monkeypatch.context() as patch:
        patch.setattr(files, "numbered", lambda: tuple(OLDER))
        migrate(empty_database)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        fill(connection)
    return empty_database


def contents(connection: Connection) -> dict[str, list[str]]:
    """Every row of every table that the older release knows, without columns that are null: new ones are. The list of
    migrations is meant to grow."""
    found = {}
    for (table,) in connection.execute(
        "select tablename from pg_tables where schemaname = 'public' and tablename <> 'search_outbox_migrations'"
    ).fetchall():
        row = sql.SQL("select json_strip_nulls(row_to_json(t))::text from {} t order by 1").format(
            sql.Identifier(table)
        )
        found[table] = [text for (text,) in connection.execute(row)]
    return found


def catalogue(connection: Connection) -> list[tuple[Any, ...]]:
    """Everything of ours that the database knows; a function's closed search_path stays on purpose."""
    return connection.execute("""
        select 'column', table_name || '.' || column_name, data_type || coalesce(column_default, '') || is_nullable
          from information_schema.columns where table_schema = 'public'
        union all select 'index', indexname, indexdef from pg_indexes where schemaname = 'public'
        union all select 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
          from pg_constraint where connamespace = 'public'::regnamespace
        union all select 'trigger', tgname, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
        union all select 'function', proname, prosrc from pg_proc where pronamespace = 'public'::regnamespace
        union all select 'sequence', sequencename, '' from pg_sequences where schemaname = 'public'
        union all select 'options', relname, reloptions::text from pg_class where relnamespace = 'public'::regnamespace
        order by 1, 2, 3
    """).fetchall()


def test_only_what_is_newer_is_applied_no_row_changes_and_the_way_back_restores_the_schema(older: str) -> None:
    with psycopg.connect(older, autocommit=True) as connection:
        before, rows = catalogue(connection), contents(connection)
        assert migrate(older) == NEWER
        assert check_schema(connection).ok
        assert contents(connection).items() >= rows.items()
        for part in back(SCHEMA).split("-- Takes back ")[1:]:
            connection.execute(part.partition("\n")[2].encode())
        assert catalogue(connection) == before
        assert contents(connection) == rows
        assert str(check_schema(connection)).startswith(f"schema {SCHEMA} is too old")
        assert migrate(older) == NEWER
