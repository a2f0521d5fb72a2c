"""Hostile text through the library and outbox_enqueue: a refusal or an exact row (HTTP: test_console_openapi.py)."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from outbox import Outbox
from tests.fixtures.hostile import HOSTILE, TEXTS
from tests.fixtures.postgres import fresh_database

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def producing(postgres_url: str, migrated_template: str) -> Iterator[Connection]:
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as connection:
        yield connection


def count(connection: Connection) -> int:
    row = connection.execute("select count(*) from search_outbox_events").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize(
    "field", ["entity_type", "entity_id", "op", "payload", "routing", "idempotency_key", "traceparent"]
)
def test_the_library_writes_exactly_what_it_was_given_or_nothing(producing: Connection, field: str, what: str) -> None:
    given: dict[str, Any] = {"entity_type": "a", "entity_id": uuid4().hex, "op": "upsert", "payload": "{}"}
    given[field] = HOSTILE[what]
    before = count(producing)
    door = Outbox("postgresql://nobody@127.0.0.1:1/nothing")
    try:
        with producing.transaction():
            id = door.enqueue(producing, **given)
    except (psycopg.Error, UnicodeEncodeError, UnicodeDecodeError):
        assert count(producing) == before
        return
    row = producing.execute(
        sql.SQL("select {}::text from search_outbox_events where id = %s").format(sql.Identifier(field)), [id]
    ).fetchone()
    assert row == (HOSTILE[what],)
