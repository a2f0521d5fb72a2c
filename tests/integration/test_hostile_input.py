"""Hostile text through SQL and the library: a clear refusal or an exact row (HTTP: test_console_openapi.py)."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from outbox import Outbox
from tests.fixtures.hostile import HOSTILE, TEXTS
from tests.fixtures.postgres import fresh_database
from tests.integration.test_bad_input import CASES, REFUSED, Case

Connection = psycopg.Connection[Any]

# outbox_enqueue and the library: refuse early only what the worker would refuse, and write what was given


def enqueued(case: Case) -> dict[str, Any]:
    row = {"entity_type": "article", "entity_id": "1", "op": "upsert", "payload": '{"title": "x"}', **case.row}
    named = {"version": row.pop("event_version"), **row} if "event_version" in row else row
    return {name: value for name, value in named.items() if name != "created_at"}


# An empty type makes an id of its own (`:1`) by plain SQL; the function asks for a name, which is what was meant.
OPEN_TO_ENQUEUE = [case for case in CASES if "created_at" not in case.row and case.name != "an empty type"]


@pytest.fixture(scope="module")
def producing(postgres_url: str, migrated_template: str) -> Iterator[Connection]:
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as connection:
        yield connection


def written(connection: Connection, id: Any) -> dict[str, Any]:
    columns = "entity_type, entity_id, op, payload::text as payload, routing, traceparent, event_version as version"
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        found = cursor.execute(f"select {columns} from search_outbox_events where id = %s".encode(), [id]).fetchone()
    assert found is not None
    return found


def count(connection: Connection) -> int:
    row = connection.execute("select count(*) from search_outbox_events").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.parametrize("case", OPEN_TO_ENQUEUE, ids=[case.name for case in OPEN_TO_ENQUEUE])
def test_enqueue_refuses_early_only_what_could_never_be_projected(producing: Connection, case: Case) -> None:
    named = enqueued(case)
    arguments = sql.SQL(", ").join(
        sql.SQL("{} => {}{}").format(
            sql.Identifier(name), sql.Placeholder(name), sql.SQL("::json" if name == "payload" else "")
        )
        for name in named
    )
    before, refused, row = count(producing), None, None
    try:
        row = producing.execute(sql.SQL("select outbox_enqueue({})").format(arguments), named).fetchone()
    except psycopg.Error as error:
        refused = error
    if refused is not None:
        assert (refused.sqlstate or "22")[:2] in ("22", "23", "42"), refused
        assert case.reason == REFUSED or case.sqlstate, f"a good event was refused: {refused}"
        assert count(producing) == before
        return
    assert row is not None
    found = written(producing, row[0])
    for name, value in named.items():
        if value is not None:
            assert str(found[name]) == str(value), name


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
