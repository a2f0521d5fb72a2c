"""`outbox attach --sql` and `outbox.sqlalchemy`: a script does what the command does; printing it changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection as Migration
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from outbox.errors import WrongConnection
from outbox.sqlalchemy import attach_sql, detach_sql
from outbox.store.attach.attach import KeptByPayloads, NotAttached, PayloadTriggers, attach, detach
from outbox.store.attach.tables import CannotAttach
from tests.fixtures.attachments import catalogue
from tests.fixtures.commands import Outbox as Command
from tests.fixtures.producers import driver as address
from tests.integration.test_attach import OLDER, ROUTED_VIEW

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
    {"table": "articles", "id_column": "id", "routing_column": "tenant"},
    {"table": "authors", "via": QUERY},
    {"table": "authors", "via": QUERY, "columns": ("name",)},
    {"table": "authors", "via": QUERY, "per_row": True},
    {"table": "log", "id_column": "id", "columns": ("title",)},
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


def keep_by_payloads(shop: Connection, entity_type: str) -> None:
    declare = "insert into search_outbox_entity_types (entity_type, kept_by, declared_by) values (%s, 'payload', 'me')"
    shop.execute(declare, [entity_type])


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


@pytest.mark.parametrize("way", [WAYS[4], WAYS[-2], WAYS[-1]])
def test_sqlalchemy_runs_the_same_script_in_the_transaction_of_the_migration(
    shop: Connection, migration: Migration, way: dict[str, Any]
) -> None:
    names = {"id_column": "id", "routing_column": "routing"}
    given = {names.get(name, name): value for name, value in asked(way).items()}
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


def test_a_script_renews_what_is_there(shop: Connection) -> None:
    attach(shop, "articles", entity_type="article", id_column="id", per_row=True)
    way = {"table": "articles", "id_column": "id", "columns": ("title",)}
    shop.execute(attach(shop, "articles", **asked(way), run=False).sql.encode())
    assert catalogue(shop) == by_the_command(shop, way)


def test_the_same_checks_come_first(shop: Connection, migration: Migration) -> None:
    with pytest.raises(CannotAttach, match="has no column typo"):
        attach_sql(migration, "articles", entity_type="article", id="typo")
    with pytest.raises(NotAttached, match="articles as article by id"):
        detach_sql(migration, "articles", entity_type="article", id="id")
    keep_by_payloads(shop, "article")
    with pytest.raises(KeptByPayloads):
        attach_sql(migration, "articles", entity_type="article", id="id")


def test_a_script_that_meets_a_type_of_payloads_elsewhere_changes_nothing(shop: Connection) -> None:
    script = attach(shop, "articles", entity_type="o'clock 100%", id_column="id", run=False).sql
    keep_by_payloads(shop, "o'clock 100%")
    before = catalogue(shop)
    with pytest.raises(
        psycopg.errors.ObjectNotInPrerequisiteState, match="keep the entity type o'clock 100%"
    ) as refused:
        shop.execute(script.encode())
    assert "outbox types set TYPE view" in (refused.value.diag.message_hint or "")
    assert catalogue(shop) == before


def test_triggers_of_payloads_are_replaced_by_the_command_only(shop: Connection) -> None:
    shop.execute(OLDER)
    keep_by_payloads(shop, "article")
    shop.execute("insert into articles values (1)")
    with pytest.raises(PayloadTriggers, match="without --sql"):
        attach(shop, "articles", entity_type="article", id_column="id", run=False)
    attach(shop, "articles", entity_type="article", id_column="id")


def test_another_driver_is_refused_with_a_remedy(shop: Connection, database: str) -> None:
    async def ask(driver: str) -> None:
        engine = create_async_engine(address(database, driver), poolclass=NullPool)
        async with engine.connect() as connection:
            await connection.run_sync(attach_sql, "articles", entity_type="article", id="id")

    for driver in ("psycopg", "asyncpg"):
        with pytest.raises(WrongConnection, match=rf"postgresql\+{driver}.* --sql"):
            asyncio.run(ask(driver))


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
