"""`outbox attach --sql` and `outbox.sqlalchemy`: a script does what the command does; printing it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection as Migration
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from outbox.sqlalchemy import attach_sql, detach_sql
from outbox.store.attach.attach import attach, detach
from tests.fixtures.attachments import catalogue
from tests.fixtures.commands import Outbox as Command
from tests.fixtures.producers import driver as address
from tests.integration.test_attach import ROUTED_VIEW

Connection = psycopg.Connection[Any]
ODD = 'Odd "name" 100% :x \\ o\'clock'
ODD_COLUMN = 'a :b %s "c"'
TABLES = """
create table authors (id int primary key, name text);
create table articles (id int primary key, author_id int references authors on delete cascade, tenant text, title text);
create table log (id int, title text);
create table parts (id int, part int, primary key (id, part)) partition by list (part);
create table parts_1 partition of parts for values in (1);
"""
ODD_TABLE = sql.SQL("create table {} (id int primary key, {} text)").format(
    sql.Identifier(ODD), sql.Identifier(ODD_COLUMN)
)
QUERY = "select id from articles where author_id = changed.id and name <> '100% :x \\ o''clock' -- %s"
WAYS: list[dict[str, Any]] = [
    {"table": "articles", "id_column": "id"},
    {"table": "articles", "id_column": "author_id", "columns": ("title", "tenant")},
    {"table": "articles", "id_column": "id", "per_row": True, "columns": ("title",)},
    {"table": "authors", "via": QUERY},
    {"table": "parts", "id_column": "id"},
    {"table": ODD, "id_column": "id", "columns": (ODD_COLUMN,), "entity_type": "o'clock 100% \\ x"},
]
each_way = pytest.mark.parametrize("way", WAYS, ids=[f"{place} {way['table'][:8]}" for place, way in enumerate(WAYS)])


@pytest.fixture
def shop(connection: Connection) -> Connection:
    for made in (TABLES, ODD_TABLE, ROUTED_VIEW):
        connection.execute(made)
    return connection


@pytest.fixture
def migration(shop: Connection, database: str) -> Iterator[Migration]:
    """As `op.get_bind()` of Alembic is one."""
    engine = create_engine(address(database, "psycopg"), poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


def asked(way: dict[str, Any]) -> dict[str, Any]:
    return {"entity_type": "article", **{name: value for name, value in way.items() if name != "table"}}


def by_the_command(shop: Connection, way: dict[str, Any]) -> list[tuple[str, ...]]:
    """What the command itself leaves where a script ran before."""
    detach(shop, way["table"])
    shop.execute("delete from search_outbox_entity_types")
    attach(shop, way["table"], **asked(way))
    return catalogue(shop)


@each_way
def test_the_script_makes_what_the_command_makes(shop: Connection, way: dict[str, Any]) -> None:
    before = catalogue(shop)
    script = attach(shop, way["table"], **asked(way), run=False).sql
    assert catalogue(shop) == before
    shop.execute(script.encode())
    made = catalogue(shop)
    shop.execute(script.encode())  # a second time changes nothing
    assert made == catalogue(shop) == by_the_command(shop, way) != before


@pytest.mark.parametrize("way", [WAYS[3], WAYS[-1]])
def test_sqlalchemy_runs_the_same_script_in_the_transaction_of_the_migration(
    shop: Connection, migration: Migration, way: dict[str, Any]
) -> None:
    given = {name.removesuffix("_column"): value for name, value in asked(way).items()}
    before = catalogue(shop)
    migration.execute(attach_sql(migration, way["table"], **given))
    assert catalogue(shop) == before, "nothing is committed yet"
    migration.commit()
    made = catalogue(shop)
    assert made == by_the_command(shop, way)
    only = {name: given[name] for name in ("entity_type", "id", "via") if name in given}
    migration.execute(detach_sql(migration, way["table"], **only))
    migration.commit()
    shop.execute("delete from search_outbox_entity_types")
    assert catalogue(shop) == before


def test_the_command_prints_sql_on_stdout_and_notes_on_stderr(shop: Connection, outbox_here: Command) -> None:
    shop.execute("drop view search_documents")
    before = catalogue(shop)
    way = {"table": "parts", "id_column": "id"}
    called = outbox_here("attach", "parts", "--type", "article", "--id", "id", "--sql")
    assert (called.code, "note: there is no view" in called.err, "note:" in called.out) == (0, True, False)
    assert catalogue(shop) == before
    shop.execute(called.out.encode())
    made = catalogue(shop)
    called = outbox_here("detach", "parts", "--type", "article", "--sql")
    assert (called.code, called.err) == (0, "")
    assert catalogue(shop) == made == by_the_command(shop, way)
    shop.execute(called.out.encode())
    shop.execute("delete from search_outbox_entity_types")
    assert catalogue(shop) == before
    shown = outbox_here("attach", "parts", "--type", "article", "--id", "id", "--sql", "--json")
    assert shown.json["sql"] in outbox_here("attach", "parts", "--type", "article", "--id", "id", "--sql").out
    assert sql.Identifier("parts_1").as_string(None) in shown.json["sql"]
