"""`outbox attach --from-view`: whatever changes in the tables of a view, every document that changes is refreshed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outbox.store.attach import from_view
from outbox.store.schema.migrate import migrate
from tests.fixtures.postgres import fresh_database
from tests.fixtures.touched import every_change
from tests.fixtures.view_schemas import SCHEMAS, ViewSchema

Connection = psycopg.Connection[Any]
VIEW = "search_documents"
each_schema = pytest.mark.parametrize("schema", SCHEMAS, ids=[each.remark for each in SCHEMAS])


@each_schema
def test_no_change_of_a_table_is_missed(connection: Connection, schema: ViewSchema) -> None:
    connection.execute(schema.script.encode())
    plan = from_view.attach_all(connection, VIEW)
    print("\n".join(f"{each.result.attachment.table}: {each.result.attachment.shown}" for each in plan.attachments))
    seen = every_change(connection, schema.tables)
    assert seen.missed == []
    assert seen.effective > 4


@pytest.fixture(scope="module")
def older_database(older_postgres_url: str) -> Iterator[str]:
    """PostgreSQL 15 and 16 store queries a little otherwise: with OLD and NEW, without entries for GROUP BY."""
    with fresh_database(older_postgres_url) as url:
        migrate(url)
        yield url


@each_schema
def test_older_servers_lead_to_the_same_attachments(
    connection: Connection, older_database: str, schema: ViewSchema
) -> None:
    connection.execute(schema.script.encode())
    here = from_view.plan(connection, VIEW).plan
    with psycopg.connect(older_database) as older:
        older.execute(schema.script.encode())
        there = from_view.plan(older, VIEW).plan
        older.rollback()
    assert here.problems == () and len(here.attachments) > 0
    assert shown(there) == shown(here)


def shown(plan: from_view.ViewPlan) -> list[Any]:
    return [(each.result.attachment, each.reason, each.state) for each in plan.attachments]
